//! An allocator, with a count.

use std::alloc::{GlobalAlloc, Layout};

use mimalloc::MiMalloc;

pub(super) struct Counting(MiMalloc);

// ===== impl Counting =====

impl Counting {
    pub(super) const fn new() -> Self {
        Self(MiMalloc)
    }
}

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every call goes on to the inner allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        super::note();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from there.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        super::note();
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        super::note();
        // SAFETY: as above; the block came from there.
        unsafe { self.0.realloc(block, layout, size) }
    }
}
