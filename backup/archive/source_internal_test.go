package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/store"
)

// TestPlacesStay: a backup of several partitions succeeds only if nothing that was in one
// of them at its beginning has moved by its end. Apps that were added meanwhile are
// included.
func TestPlacesStay(t *testing.T) {
	for name, c := range map[string]struct {
		after map[string]string
		ok    bool
	}{
		"nothing happens": {map[string]string{"app/a": "main", "app/b": "main.1"}, true},
		"an app comes":    {map[string]string{"app/a": "main", "app/b": "main.1", "app/c": "main"}, true},
		"an app moves":    {map[string]string{"app/a": "main.1", "app/b": "main.1"}, false},
		"an app goes":     {map[string]string{"app/a": "main"}, false},
		// A desired placement does not affect the copies. The move of a slot does, even
		// if it is the first.
		"an app is to be split":           {map[string]string{"app/a": "main", "app/b": "main.1", "split/a": "{}"}, true},
		"a slot moves for the first time": {map[string]string{"app/a": "main", "app/b": "main.1", "had/a/main.1": "1", "slot/a/3": "main.1 1"}, false},
	} {
		asked := 0
		s := &Source{ID: "s", Rows: func(context.Context) (map[string]string, error) {
			if asked++; asked == 1 {
				return map[string]string{"app/a": "main", "app/b": "main.1"}, nil
			}
			return maps.Clone(c.after), nil
		}}
		for _, u := range []placedPartition{{"main", 7}, {"main.1", 9}} {
			p := Part{Partition: u.Name, Copy: func(_ context.Context, begin func(store.Copied) error, create func(string) (io.Writer, error)) error {
				if asked != 1 {
					t.Errorf("%s: the places were read %d times before a partition", name, asked)
				}
				if err := begin(store.Copied{Applied: u.Applied}); err != nil {
					return err
				}
				_, err := create("store/history/00000000000000000000.seg")
				return err
			}}
			if u.Name != "main" {
				p.Prefix = "units/" + u.Name + "/"
			}
			s.Parts = append(s.Parts, p)
		}
		var made bytes.Buffer
		_, err := s.Write(t.Context(), &made, KeysIncluded)
		if !c.ok {
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "again") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, split := c.after["split/a"]
		if bytes.Contains(made.Bytes(), []byte("form 2\n")) != split { // older programs must refuse such a backup
			t.Errorf("%s: that an app is split is told: %v", name, !split)
		}
		x := &restore{}
		if res, err := x.read(t.Context(), &made); err != nil || res.Units != 2 || res.Applied != 7 || !maps.Equal(x.placed.Rows, c.after) || x.placed.Units[1].Applied != 9 {
			t.Errorf("%s: %+v, %+v, %v", name, res, x.placed, err)
		}
	}
	s := &Source{Rows: func(context.Context) (map[string]string, error) { return nil, errors.New("etcd does not answer") }, Parts: []Part{{}, {}}}
	if _, err := s.Write(t.Context(), io.Discard, KeysIncluded); err == nil || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("without etcd: %v", err)
	}
}
