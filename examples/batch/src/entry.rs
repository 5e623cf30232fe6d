//! The table of entries, as SeaORM sees it.

use sea_orm::entity::prelude::*;

pub(crate) const TABLE: &str = "CREATE TABLE entry (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    revision INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    UNIQUE (account, revision)
) STRICT";

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "entry")]
pub(crate) struct Model {
    #[sea_orm(primary_key)]
    pub id: i64,
    pub account: String,
    pub revision: i64,
    pub amount: i64,
}

#[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
