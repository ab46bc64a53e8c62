package audit

import (
	"errors"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// objects returns the entries of a chain, with n events for each of the objects, and its ends.
func objects(n int, names ...string) (all []entry, ends []Anchor) {
	var c Chain
	for i, name := range names {
		var b Builder
		for range n {
			b.Add(&apiv1.Attribution{Author: "ada"}, Row{Code: "job.created", App: "shop", Object: name})
		}
		events, _, count := b.Finish()
		all = append(all, entry{c.Add(int64(i), events, count), int64(i)})
		ends = append(ends, c.Anchor())
	}
	return all, ends
}

// TestAnchor checks chains against an anchor, as they are verified.
func TestAnchor(t *testing.T) {
	whole, ends := objects(2, "a", "b", "c", "d")
	forged, _ := objects(2, "a", "x", "c", "d") // a chain that fits, with another event
	longer, _ := objects(2, "a", "b", "c", "d", "e", "f")
	inserted, _ := objects(3, "a", "b", "c", "d")
	for name, test := range map[string]struct {
		anchor Anchor
		log    []entry
		want   string // in the error; "": none
	}{
		"the end":                       {ends[3], whole, ""},
		"in the middle":                 {ends[1], whole, ""},
		"no anchor":                     {Anchor{}, whole, ""},
		"no anchor of an empty log":     {Anchor{}, nil, ""},
		"more events since":             {ends[3], longer, ""},
		"older events were removed":     {ends[0], whole[2:], ""},
		"removed up to the anchor":      {ends[1], whole[2:], ""},
		"the beginning is the anchor":   {ends[1], whole[1:], ""},
		"an event was changed":          {ends[3], forged, "another one than the anchored one"},
		"the anchored event is changed": {ends[1], forged, "another one than the anchored one"},
		"an event before is unchanged":  {ends[0], forged, ""},
		"events at the end are missing": {ends[3], whole[:3], "ends at event 6, and was anchored at event 8"},
		"the log is empty":              {ends[0], nil, "ends at event 0, and was anchored at event 2"},
		"events were added":             {ends[3], inserted, "another one than the anchored one"},
	} {
		var c Chain
		k := &Check{Anchor: test.anchor}
		for i, e := range test.log {
			if err := c.Follow(e.e, e.atMs, i == 0 && e.e.First > 1); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			k.Follow(&c, e.e.First)
		}
		err := k.Err(&c)
		if (err == nil) != (test.want == "") || err != nil && (!errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	for _, m := range []*apiv1.AuditAnchor{{Sequence: 1}, {Sequence: 1, Head: "zz"}, {Head: strings.Repeat("ab", 32)}, {Sequence: 1, Head: strings.Repeat("ab", 31)}} {
		if a, err := ParseAnchor(m); err == nil {
			t.Errorf("%v is read as %v", m, a)
		}
	}
	if a, err := ParseAnchor(ends[2].Message("p")); err != nil || a.Sequence != 6 || string(a.Head) != string(ends[2].Head) {
		t.Errorf("%v, %v", a, err)
	}
}
