package sched

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file has the keys of the small rows of the store. Each kind has one function that
// builds its key; loadRow reads them all.

func countRow(app string) string { return "count/" + app }

func minuteRow(app string, minute int64) string { return fmt.Sprintf("minute/%s/%012d", app, minute) }

// statsStartRow is the key of the row with the length of the history up to which the
// statistics of jobs have counted all runs.
const statsStartRow = "tally/"

func settingsRow(app string) string { return "settings/" + app }

func calendarRow(k jobKey) string { return "calendar/" + k.app + "/" + k.name }

// parseRow splits the key of a small row, which has the form kind/app or kind/app/rest.
func parseRow(key string) (kind, app, rest string, err error) {
	kind, rest, ok := strings.Cut(key, "/")
	if !ok {
		return "", "", "", fmt.Errorf("the store has a row %q that is none of ours", key)
	}
	app, rest, _ = strings.Cut(rest, "/")
	return kind, app, rest, nil
}

func (l *loop) loadRow(key string, value []byte) error {
	kind, name, rest, err := parseRow(key)
	if err != nil {
		return err
	}
	if kind+"/" == bundlePrefix { // loadBundle has read it
		return nil
	}
	if key == statsStartRow {
		from, n := binary.Uvarint(value)
		if n <= 0 {
			return fmt.Errorf("row %q: its number is damaged", key)
		}
		l.view.deferred.from, l.view.deferred.groups[0].from = int64(from), int64(from)
		return nil
	}
	a := l.app(name)
	switch kind {
	case "count":
		return proto.Unmarshal(value, &a.count)
	case "settings":
		m := &apiv1.App{}
		a.slots[job.ModuleSlot].Settings = m
		return proto.Unmarshal(value, m)
	case "calendar":
		m := &apiv1.Calendar{}
		a.slots[job.ModuleSlot].Calendars[rest] = m
		return proto.Unmarshal(value, m)
	case "alias", "canary":
		return a.loadAlias(kind, rest, value)
	case "minute":
		at, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
		m := &apiv1.MinuteRow{}
		a.minutes[at] = m
		return proto.Unmarshal(value, m)
	case "keys": // older formats stored keys here; the next projection batch moves them to the key log
		l.view.mark(key, func() proto.Message { return nil })
		_, err := a.loadKeys(value, func(hash [16]byte, id job.RunID, atMs int64, input uint32) { l.view.key(a, hash, id, atMs, input) })
		if err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
		return nil
	}
	return l.loadGuestRow(a, kind, rest, key, value)
}
