//! The system's allocator, with a count.

use std::alloc::{GlobalAlloc, Layout, System};

pub(super) struct Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        super::note();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from there.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        super::note();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        super::note();
        // SAFETY: as above; the block came from there.
        unsafe { System.realloc(block, layout, size) }
    }
}
