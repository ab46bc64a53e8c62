package host

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/mq"
)

// A result is in the spool from Keep until Forget, also after the spool is opened again.
// Forget of a result that is not in the spool has no effect.
func TestSpool(t *testing.T) {
	dir := t.TempDir()
	with := func(f func(s *spool, kept map[byte]string)) {
		t.Helper()
		log, err := mq.Open(mq.Config{Dir: dir, SegmentBytes: 1 << 20, ReserveBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := log.Close(); err != nil {
				t.Error(err)
			}
		}()
		s := newSpool(log, slog.New(slog.DiscardHandler))
		all, err := s.Kept()
		if err != nil {
			t.Fatal(err)
		}
		kept := map[byte]string{}
		for _, r := range all {
			kept[r.Run[15]] = string(r.Output)
		}
		f(s, kept)
	}
	result := func(n byte) *apiv1.TaskResult {
		return &apiv1.TaskResult{Run: append(make([]byte, 15), n), App: "a", Attempt: 1, Output: []byte{'0' + n}}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	with(func(s *spool, kept map[byte]string) {
		check(s.Keep([]*apiv1.TaskResult{result(1), result(2), result(3)}))
		check(s.Forget(result(2)))
		check(s.Forget(result(9))) // could not be kept
		check(s.Sync())
	})
	with(func(s *spool, kept map[byte]string) {
		if len(kept) != 2 || kept[1] != "1" || kept[3] != "3" {
			t.Fatalf("kept: %v", kept)
		}
		check(s.Forget(result(1)))
		other := proto.CloneOf(result(3))
		other.Attempt = 2
		check(s.Forget(other))
		check(s.Sync())
	})
	with(func(s *spool, kept map[byte]string) {
		if len(kept) != 1 {
			t.Fatalf("kept: %v", kept)
		}
		check(s.Forget(result(3)))
		check(s.Sync())
	})
	with(func(_ *spool, kept map[byte]string) {
		if len(kept) != 0 {
			t.Fatalf("kept: %v", kept)
		}
	})
}
