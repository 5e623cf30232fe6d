#![doc = include_str!("../README.md")]

mod case;
mod cli;
mod crate_tests;
mod database;
mod evidence;
mod experiments;
mod kafka;
mod member;
mod progress;
mod report;
mod run;
mod says;
mod services;
pub mod worker;

pub use self::cli::main;
