package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/mq"
)

// The records of the spool. A result is taken back by the mark of its attempt;
// when nothing is left the log is trimmed.
const (
	spoolResult = 1 // a TaskResult
	spoolMark   = 2 // a TaskResult without what is in it: acknowledged
)

// spoolAfter is how long a result may be without an acknowledgement before it
// is written down.
const spoolAfter = 200 * time.Millisecond

// readSpool makes the host hold what an earlier one could not deliver.
func (h *Host) readSpool() error {
	err := h.cfg.Spool.Read(h.cfg.Spool.First(), h.readRecord)
	for {
		var lost *mq.LostError
		if !errors.As(err, &lost) {
			break
		}
		// Somebody repaired the spool. A result that is lost is made again: its
		// server hears of the run no more and sends it once more.
		h.cfg.Logger.Warn("the spool has lost results", "first", lost.First, "end", lost.End)
		err = h.cfg.Spool.Read(lost.End, h.readRecord)
	}
	h.spooled = len(h.held)
	if err == nil && h.spooled == 0 {
		err = h.cfg.Spool.Trim(h.cfg.Spool.Next())
	}
	return err
}

func (h *Host) readRecord(e mq.Entry) error {
	r := &apiv1.TaskResult{}
	if err := proto.Unmarshal(e.Body, r); err != nil {
		return fmt.Errorf("record %d: %w", e.Seq, err)
	}
	if len(r.Run) != 16 {
		return fmt.Errorf("record %d is of no run", e.Seq)
	}
	k := key{r.App, [16]byte(r.Run), r.Attempt}
	switch e.Type {
	case spoolResult:
		h.held[k] = &task{key: k, state: finished, result: r, kept: true}
	case spoolMark:
		delete(h.held, k)
	default:
		return fmt.Errorf("record %d has the unknown type %d", e.Seq, e.Type)
	}
	return nil
}

// keepSpool writes down results that wait for their acknowledgement.
func (h *Host) keepSpool(ctx context.Context) error {
	tick := time.NewTicker(spoolAfter)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			h.spool(now.Add(-spoolAfter))
		}
	}
}

// spoolAll writes down whatever is left when the host ends.
func (h *Host) spoolAll() error {
	h.spool(time.Now().Add(time.Hour))
	done := make(chan error, 1)
	if _, err := h.cfg.Spool.Append(nil, func(err error) { done <- err }); err != nil {
		return fmt.Errorf("sync the spool: %w", err)
	}
	return <-done
}

// spool writes down the results that were finished before a moment.
func (h *Host) spool(before time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var recs []mq.Record
	var kept []*task
	for _, t := range h.held {
		if t.state != finished || t.kept || t.doneAt.After(before) {
			continue
		}
		body, err := proto.Marshal(t.result)
		if err != nil {
			h.cfg.Logger.Error("a result cannot be kept", "error", err)
			continue
		}
		recs = append(recs, mq.Record{Type: spoolResult, Body: body})
		kept = append(kept, t)
	}
	if len(recs) == 0 {
		return
	}
	if _, err := h.cfg.Spool.Append(recs, nil); err != nil {
		// The results are still held in memory and will be sent; only a restart
		// of the host would now lose them, and then the server runs them again.
		h.cfg.Logger.Error("results could not be written to the spool", "results", len(recs), "error", err)
		return
	}
	for _, t := range kept {
		t.kept = true
	}
	h.spooled += len(kept)
}

// unspoolLocked marks a spooled result as acknowledged; h.mu must be held.
func (h *Host) unspoolLocked(k key) {
	body, err := proto.Marshal(&apiv1.TaskResult{Run: k.run[:], App: k.app, Attempt: k.attempt})
	if err == nil {
		_, err = h.cfg.Spool.AppendLazy([]mq.Record{{Type: spoolMark, Body: body}})
	}
	if h.spooled--; h.spooled == 0 {
		err = errors.Join(err, h.cfg.Spool.Trim(h.cfg.Spool.Next()))
	}
	if err != nil {
		// At worst the result is sent once more after a restart, and the server
		// knows it already.
		h.cfg.Logger.Warn("the spool could not be marked", "error", err)
	}
}
