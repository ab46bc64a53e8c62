package host

import (
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/mq"
)

// The types of the records in the spool. A mark cancels the result of the same attempt.
// When no result without a mark is left, the log is trimmed.
const (
	spoolResult = 1 // a TaskResult
	spoolMark   = 2 // a TaskResult with only the key of the attempt: the result is acknowledged
)

// spool stores results in a log.
type spool struct {
	log    *mq.Log
	logger *slog.Logger
	kept   map[key]*apiv1.TaskResult // the results in the log without a mark; after Kept only the keys count
}

// key names an attempt.
type key struct {
	app     string
	run     [16]byte
	attempt int32
}

func keyOf(r *apiv1.TaskResult) key { return key{r.App, [16]byte(r.Run), r.Attempt} }

func newSpool(log *mq.Log, logger *slog.Logger) *spool {
	return &spool{log: log, logger: logger, kept: map[key]*apiv1.TaskResult{}}
}

// Kept returns the results that an earlier host could not deliver.
func (s *spool) Kept() ([]*apiv1.TaskResult, error) {
	err := s.log.Read(s.log.First(), s.readRecord)
	for {
		var lost *mq.LostError
		if !errors.As(err, &lost) {
			break
		}
		// The spool was repaired. A lost result is produced again: the host no longer
		// reports its run, so the server sends the task again.
		s.logger.Warn("the spool has lost results", "first", lost.First, "end", lost.End)
		err = s.log.Read(lost.End, s.readRecord)
	}
	if err == nil && len(s.kept) == 0 {
		err = s.log.Trim(s.log.Next())
	}
	all := make([]*apiv1.TaskResult, 0, len(s.kept))
	for k, r := range s.kept {
		all = append(all, r)
		s.kept[k] = nil // the caller owns the result; only the key is needed
	}
	return all, err
}

func (s *spool) readRecord(e mq.Entry) error {
	r := &apiv1.TaskResult{}
	if err := proto.Unmarshal(e.Body, r); err != nil {
		return fmt.Errorf("record %d: %w", e.Seq, err)
	}
	if len(r.Run) != 16 {
		return fmt.Errorf("record %d has no run", e.Seq)
	}
	switch e.Type {
	case spoolResult:
		s.kept[keyOf(r)] = r
	case spoolMark:
		delete(s.kept, keyOf(r))
	default:
		return fmt.Errorf("record %d has the unknown type %d", e.Seq, e.Type)
	}
	return nil
}

// Keep appends results.
func (s *spool) Keep(results []*apiv1.TaskResult) error {
	recs := make([]mq.Record, 0, len(results))
	for _, r := range results {
		body, err := proto.Marshal(r)
		if err != nil {
			return err
		}
		recs = append(recs, mq.Record{Type: spoolResult, Body: body})
	}
	if _, err := s.log.Append(recs, nil); err != nil {
		return err
	}
	for _, r := range results {
		s.kept[keyOf(r)] = nil
	}
	return nil
}

// Forget marks a result as acknowledged.
func (s *spool) Forget(r *apiv1.TaskResult) error {
	k := keyOf(r)
	if _, ok := s.kept[k]; !ok {
		return nil
	}
	delete(s.kept, k)
	body, err := proto.Marshal(&apiv1.TaskResult{Run: r.Run, App: r.App, Attempt: r.Attempt})
	if err == nil {
		_, err = s.log.AppendLazy([]mq.Record{{Type: spoolMark, Body: body}})
	}
	if len(s.kept) == 0 {
		err = errors.Join(err, s.log.Trim(s.log.Next()))
	}
	return err
}

// Sync waits until all results are durable.
func (s *spool) Sync() error {
	done := make(chan error, 1)
	if _, err := s.log.Append(nil, func(err error) { done <- err }); err != nil {
		return err
	}
	return <-done
}
