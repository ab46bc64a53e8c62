package audit

import (
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire"
	"github.com/wheelworkhq/wheelwork/internal/wire/fields"
)

// Builder encodes the events of a batch as an [apiv1.AuditEvents], while they come: there may be
// 100 000 a second. The zero value is empty.
type Builder struct {
	b     []byte
	n     int
	group int // where the fields of the open group begin; 0: none is open
	of    *apiv1.Attribution
	code  string
	app   string
	names []string // of the groups, see [Names]
	again *Row     // the last event, which equal ones may follow; it is not encoded yet
}

// Row is an event without its caller. The fields are those of [apiv1.AuditRow], with a code and an app.
type Row struct {
	Code, App, Object, Outcome, Before, After, Message string
	Count, Revision                                    int64
}

// Bounds of the texts of an event, in bytes. A longer text is cut, and ends with a mark: a name may come
// from a caller that is refused, and a change must never fail to have its event.
const (
	maxName = 1 << 10
	maxText = 16 << 10 // of a message or a note: the longest names the 100 bindings of a principal
)

// cut returns a text as an event has it: valid UTF-8, because an entry with other bytes cannot be read, and
// at most most bytes and a mark.
func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// cut cuts the texts of the event.
func (e *Row) cut() {
	for _, text := range []*string{&e.Code, &e.App, &e.Object, &e.Outcome, &e.Before, &e.After} {
		*text = cut(*text, maxName)
	}
	e.Message = cut(e.Message, maxText)
}

// counted has the codes of which consecutive events of one object become one with a count.
var counted = map[string]bool{"job.backfilled": true}

// Add adds an event of a caller. It cuts texts that are too long.
func (b *Builder) Add(by *apiv1.Attribution, e Row) {
	e.cut()
	if a := b.again; a != nil {
		if b.of == by && a.Code == e.Code && a.App == e.App && a.Object == e.Object {
			a.Count++
			return
		}
		b.settle()
	}
	if b.group == 0 || b.of != by || b.code != e.Code || b.app != e.App {
		b.begin(by, e.Code, e.App)
	}
	b.n++
	if counted[e.Code] {
		e.Count = max(e.Count, 1)
		b.again = &e
		return
	}
	b.row(&e)
}

// settle encodes the event that no equal one follows.
func (b *Builder) settle() {
	if b.again != nil {
		b.row(b.again)
		b.again = nil
	}
}

// begin ends the open group, and begins another one.
func (b *Builder) begin(by *apiv1.Attribution, code, app string) {
	b.end()
	b.of, b.code, b.app = by, code, app
	actor := cut(by.GetAuthor(), maxName)
	b.names = append(b.names, ActorName(actor), AppName(app), CodeName(code))
	b.b, b.group = wire.Begin(b.b, fields.AuditEventsGroups)
	b.b = wire.Text(b.b, fields.AuditGroupActor, actor)
	b.b = wire.Text(b.b, fields.AuditGroupKind, cut(by.GetKind(), maxName))
	b.b = wire.Text(b.b, fields.AuditGroupToken, cut(by.GetToken(), maxName))
	b.b = wire.Text(b.b, fields.AuditGroupAddress, cut(by.GetAddress(), maxName))
	b.b = wire.Text(b.b, fields.AuditGroupNote, cut(by.GetNote(), maxText))
	b.b = wire.Text(b.b, fields.AuditGroupCode, code)
	b.b = wire.Text(b.b, fields.AuditGroupApp, app)
}

func (b *Builder) end() {
	if b.group > 0 {
		b.b, b.group = wire.End(b.b, b.group), 0
	}
}

func (b *Builder) row(e *Row) {
	to, from := wire.Begin(b.b, fields.AuditGroupEvents)
	to = wire.Text(to, fields.AuditRowObject, e.Object)
	to = wire.Text(to, fields.AuditRowOutcome, e.Outcome)
	to = wire.Text(to, fields.AuditRowBefore, e.Before)
	to = wire.Text(to, fields.AuditRowAfter, e.After)
	to = wire.Text(to, fields.AuditRowMessage, e.Message)
	to = wire.Int(to, fields.AuditRowCount, e.Count)
	to = wire.Int(to, fields.AuditRowRevision, e.Revision)
	b.b = wire.End(to, from)
}

// Len returns the number of bytes that are encoded.
func (b *Builder) Len() int { return len(b.b) }

// Finish returns the encoded events with the names by which they are found and their number, and
// empties the builder; 0: there are none.
func (b *Builder) Finish() (events []byte, names []string, n int) {
	if b.n == 0 {
		return nil, nil, 0
	}
	b.settle()
	b.end()
	slices.Sort(b.names)
	events, names, n = b.b, slices.Compact(b.names), b.n
	*b = Builder{}
	return events, names, n
}
