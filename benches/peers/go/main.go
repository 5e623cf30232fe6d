// A franz-go consumer: a plain poll loop, or a goroutine for each partition with
// a transaction for each record or for each fetch.
//
// It is told what to do by a job as JSON, and answers with a tally as JSON, as
// the programs in benches/src/programs do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

type job struct {
	Program    string
	Bootstrap  string
	Database   string
	Topic      string
	Partitions int32
	Group      string
	Records    int64
}

type tally struct {
	Records       int64 `json:"records"`
	Revisions     int64 `json:"revisions"`
	First         int64 `json:"first"`
	Tenth         int64 `json:"tenth"`
	NineTenths    int64 `json:"nine_tenths"`
	Last          int64 `json:"last"`
	Batches       int64 `json:"batches"`
	CPUMicros     int64 `json:"cpu_micros"`
	ResidentBytes int64 `json:"resident_bytes"`
	Allocations   int64 `json:"allocations"`
}

type transfer struct {
	ID       int64  `json:"id"`
	Account  string `json:"account"`
	Revision int64  `json:"revision"`
	Amount   int64  `json:"amount"`
}

// meter counts records, and sees when.
type meter struct {
	expected                       int64
	records, revisions, batches    atomic.Int64
	first, tenth, nineTenths, last atomic.Int64
	done                           chan struct{}
}

func (m *meter) note(count int64) {
	after := m.records.Add(count)
	crossed := func(bound int64) bool { return after >= bound && after-count < bound }
	now := func() int64 { return time.Now().UnixMicro() }
	if after == count {
		m.first.Store(now())
	}
	if crossed(m.expected / 10) {
		m.tenth.Store(now())
	}
	if crossed(m.expected / 10 * 9) {
		m.nineTenths.Store(now())
	}
	if crossed(m.expected) {
		m.last.Store(now())
		close(m.done)
	}
}

func (m *meter) tally() tally {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return tally{
		Records:       m.records.Load(),
		Revisions:     m.revisions.Load(),
		First:         m.first.Load(),
		Tenth:         m.tenth.Load(),
		NineTenths:    m.nineTenths.Load(),
		Last:          m.last.Load(),
		Batches:       m.batches.Load(),
		CPUMicros:     usage.Utime.Nano()/1000 + usage.Stime.Nano()/1000,
		ResidentBytes: usage.Maxrss * 1024,
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "franz-go:", err)
		os.Exit(1)
	}
}

// read counts what is polled, with automatic commits.
func read(ctx context.Context, client *kgo.Client, meter *meter) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		var count, revisions int64
		fetches.EachRecord(func(record *kgo.Record) {
			var value transfer
			check(json.Unmarshal(record.Value, &value))
			revisions += value.Revision
			count++
		})
		if count > 0 {
			meter.revisions.Add(revisions)
			meter.note(count)
		}
	}
	check(client.CommitUncommittedOffsets(context.Background()))
	client.Close()
}

var errOrder = errors.New("revisions are out of order")

// apply writes a record in a transaction of its own.
func apply(ctx context.Context, pool *pgxpool.Pool, record *kgo.Record) error {
	var value transfer
	if err := json.Unmarshal(record.Value, &value); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "INSERT INTO marker (id) VALUES ($1) ON CONFLICT DO NOTHING", value.ID)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		tag, err = tx.Exec(ctx, `INSERT INTO balance AS b (account, revision, amount) VALUES ($1, $2, $3)
			ON CONFLICT (account) DO UPDATE
			SET revision = excluded.revision, amount = b.amount + excluded.amount
			WHERE b.revision = excluded.revision - 1`, value.Account, value.Revision, value.Amount)
		if err == nil && tag.RowsAffected() != 1 {
			err = errOrder
		}
		return err
	})
}

type sum struct{ first, last, amount int64 }

// merge writes records in one transaction.
func merge(ctx context.Context, pool *pgxpool.Pool, records []*kgo.Record) error {
	ids := make([]int64, len(records))
	sums := make(map[string]*sum, len(records))
	for i, record := range records {
		var value transfer
		if err := json.Unmarshal(record.Value, &value); err != nil {
			return err
		}
		ids[i] = value.ID
		it := sums[value.Account]
		if it == nil {
			it = &sum{value.Revision, value.Revision - 1, 0}
			sums[value.Account] = it
		}
		if it.last != value.Revision-1 {
			return errOrder
		}
		it.last, it.amount = value.Revision, it.amount+value.Amount
	}
	var accounts []string
	var first, last, amounts []int64
	for account, it := range sums {
		accounts = append(accounts, account)
		first, last, amounts = append(first, it.first), append(last, it.last), append(amounts, it.amount)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "INSERT INTO marker (id) SELECT unnest($1::int8[]) ON CONFLICT DO NOTHING", ids)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != int64(len(ids)) {
			return errors.New("a record came twice: no case of this loop")
		}
		tag, err = tx.Exec(ctx, `MERGE INTO balance b
			USING unnest($1::text[], $2::int8[], $3::int8[], $4::int8[]) AS r (account, first, last, amount)
			ON b.account = r.account
			WHEN MATCHED AND b.revision = r.first - 1 THEN
				UPDATE SET revision = r.last, amount = b.amount + r.amount
			WHEN NOT MATCHED AND r.first = 1 THEN
				INSERT (account, revision, amount) VALUES (r.account, r.last, r.amount)`,
			accounts, first, last, amounts)
		if err == nil && tag.RowsAffected() != int64(len(sums)) {
			err = errOrder
		}
		return err
	})
}

// workers has a goroutine for each partition, as franz-go's documentation has
// it: marked records are committed automatically, and a rebalance waits for
// what runs.
type workers struct {
	meter *meter
	pool  *pgxpool.Pool
	bulk  bool
	each  map[int32]*worker
}

type worker struct {
	quit, done chan struct{}
	fetches    chan []*kgo.Record
}

func (w *workers) work(client *kgo.Client, worker *worker) {
	defer close(worker.done)
	ctx := context.Background()
	for {
		select {
		case <-worker.quit:
			return
		case records := <-worker.fetches:
			if w.bulk {
				check(merge(ctx, w.pool, records))
				client.MarkCommitRecords(records...)
				w.meter.batches.Add(1)
				w.meter.note(int64(len(records)))
				continue
			}
			for _, record := range records {
				select {
				case <-worker.quit:
					return
				default:
				}
				check(apply(ctx, w.pool, record))
				client.MarkCommitRecords(record)
				w.meter.batches.Add(1)
				w.meter.note(1)
			}
		}
	}
}

func (w *workers) assigned(_ context.Context, client *kgo.Client, assigned map[string][]int32) {
	for _, partitions := range assigned {
		for _, partition := range partitions {
			worker := &worker{make(chan struct{}), make(chan struct{}), make(chan []*kgo.Record, 5)}
			w.each[partition] = worker
			go w.work(client, worker)
		}
	}
}

func (w *workers) lost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	var ending sync.WaitGroup
	for _, partitions := range lost {
		for _, partition := range partitions {
			worker := w.each[partition]
			delete(w.each, partition)
			close(worker.quit)
			ending.Go(func() { <-worker.done })
		}
	}
	ending.Wait()
}

func (w *workers) revoked(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
	w.lost(ctx, client, revoked)
	check(client.CommitMarkedOffsets(ctx))
}

func (w *workers) run(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 10_000)
		fetches.EachPartition(func(fetch kgo.FetchTopicPartition) {
			if len(fetch.Records) > 0 {
				select {
				case w.each[fetch.Partition].fetches <- fetch.Records:
				case <-ctx.Done():
				}
			}
		})
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}

func main() {
	var job job
	check(json.Unmarshal([]byte(os.Args[1]), &job))
	ctx, stop := context.WithCancel(context.Background())
	meter := &meter{expected: job.Records, done: make(chan struct{})}
	go func() {
		<-meter.done
		stop()
	}()
	options := []kgo.Opt{
		kgo.SeedBrokers(job.Bootstrap),
		kgo.ConsumerGroup(job.Group),
		kgo.ConsumeTopics(job.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if job.Program == "franz-read" {
		client, err := kgo.NewClient(options...)
		check(err)
		read(ctx, client, meter)
	} else {
		config, err := pgxpool.ParseConfig(job.Database)
		check(err)
		config.MaxConns = job.Partitions
		pool, err := pgxpool.NewWithConfig(ctx, config)
		check(err)
		workers := &workers{meter, pool, job.Program == "franz-merge", map[int32]*worker{}}
		client, err := kgo.NewClient(append(options, kgo.OnPartitionsAssigned(workers.assigned),
			kgo.OnPartitionsRevoked(workers.revoked), kgo.OnPartitionsLost(workers.lost),
			kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll())...)
		check(err)
		workers.run(ctx, client)
	}
	check(json.NewEncoder(os.Stdout).Encode(meter.tally()))
}
