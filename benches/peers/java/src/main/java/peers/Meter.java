package peers;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/** Counts records, and sees when. */
final class Meter {
    private final long expected;
    private final AtomicLong records = new AtomicLong();
    private final AtomicLong revisions = new AtomicLong();
    private final AtomicLong batches = new AtomicLong();
    private volatile long first;
    private volatile long tenth;
    private volatile long nineTenths;
    private volatile long last;
    private final CountDownLatch done = new CountDownLatch(1);

    Meter(long expected) {
        this.expected = expected;
    }

    /** So many more records are done. */
    void note(long count) {
        if (count == 0) {
            return;
        }
        long after = records.addAndGet(count);
        long before = after - count;
        if (before == 0) {
            first = now();
        }
        if (before < expected / 10 && after >= expected / 10) {
            tenth = now();
        }
        if (before < expected / 10 * 9 && after >= expected / 10 * 9) {
            nineTenths = now();
        }
        if (before < expected && after >= expected) {
            last = now();
            done.countDown();
        }
    }

    void add(long more) {
        revisions.addAndGet(more);
    }

    void batch() {
        batches.incrementAndGet();
    }

    boolean isDone() {
        return done.getCount() == 0;
    }

    void await() throws InterruptedException {
        done.await();
    }

    Map<String, Long> tally() {
        long cpu = ProcessHandle.current().info().totalCpuDuration().orElseThrow().toNanos() / 1000;
        Map<String, Long> tally = new LinkedHashMap<>();
        tally.put("records", records.get());
        tally.put("revisions", revisions.get());
        tally.put("first", first);
        tally.put("tenth", tenth);
        tally.put("nine_tenths", nineTenths);
        tally.put("last", last);
        tally.put("batches", batches.get());
        tally.put("cpu_micros", cpu);
        tally.put("resident_bytes", 0L);
        tally.put("allocations", 0L);
        return tally;
    }

    private static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
