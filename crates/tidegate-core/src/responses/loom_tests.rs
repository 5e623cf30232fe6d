//! Every interleaving of answers and a task that waits for them.

use std::future::poll_fn;

use loom::{future::block_on, sync::Arc, thread};

use super::{Context, Mutex, Pin, Poll, Responses, Waker};

#[derive(Clone)]
struct Response(Arc<Mutex<(bool, Option<Waker>)>>);

impl Response {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((false, None))))
    }

    fn answer(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Response {
    type Output = Result<(), ()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(Ok(()));
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

// One that comes while its group is polled wakes it again.
#[test]
fn no_answer_is_missed() {
    loom::model(|| {
        let each = [Response::new(), Response::new()];
        let threads = each.clone().map(|response| thread::spawn(move || response.answer()));
        let mut responses = Responses::default();
        for response in each {
            responses.push(response).unwrap();
        }
        block_on(poll_fn(|cx| responses.poll_all(cx)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

// What is looked at between two turns leaves nothing behind for which the task
// would wait in vain.
#[test]
fn a_look_within_a_turn_loses_no_wake_up() {
    loom::model(|| {
        let response = Response::new();
        let thread = thread::spawn({
            let response = response.clone();
            move || response.answer()
        });
        let mut responses = Responses::default();
        block_on(poll_fn(|cx| {
            responses.register(cx);
            if responses.is_empty() {
                responses.push(response.clone()).unwrap();
            }
            responses.poll_woken().unwrap();
            responses.poll_woken().unwrap();
            if responses.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }));
        thread.join().unwrap();
    });
}
