package document

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	alerts "github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// TestServerAgrees compares the values and bounds in the table of jobs with what the server
// accepts: it refuses a value outside, and none inside for that field.
func TestServerAgrees(t *testing.T) {
	for i := range jobKind.Fields {
		f := &jobKind.Fields[i]
		var inside, outside []string
		if len(f.Enum) > 0 {
			inside, outside = f.Enum, []string{"nosuch"}
			if f.Type == Texts {
				inside, outside = []string{"[" + strings.Join(f.Enum, ", ") + "]"}, []string{"[nosuch]"}
			}
		}
		if b := f.Bounds; b != nil {
			if b.Min != 0 { // 0 is as if left out
				inside = append(inside, plain(b.Min))
			}
			if b.Max < math.MaxInt32 { // otherwise it is that of the type
				inside, outside = append(inside, plain(b.Max)), append(outside, plain(b.Max+1))
			}
			if b.Max < math.MaxUint64 {
				outside = append(outside, plain(b.Min-1))
			}
		}
		for _, value := range inside {
			if err := validate(t, f, value); err != nil && strings.Contains(err.Error(), f.Path) && strings.Contains(err.Error(), strings.Trim(value, "[]")) {
				t.Errorf("%s %s is in the table, and the server says: %v", f.Path, value, err)
			}
		}
		for _, value := range outside {
			if validate(t, f, value) == nil {
				t.Errorf("%s %s is not in the table, and the server accepts it", f.Path, value)
			}
		}
	}
}

// companions are the fields that the server wants beside a field, in a mapping of YAML.
var companions = map[string]string{
	"misfire.max":      "misfire: {policy: fire_all}\nschedule: {every: 1m}\n",
	"misfire.policy":   "schedule: {every: 1m}\n",
	"fanout.shards":    "fanout: {mode: shards}\n",
	"fanout.max_parts": "fanout: {mode: map}\n",
	"fanout.max_depth": "fanout: {mode: map}\n",
	"overlap.limit":    "overlap: {policy: queue}\n",
	"routing.key":      "routing: {strategy: hash}\n",
	"schedule.gap":     "schedule: {cron: '@daily'}\n",
	"schedule.fold":    "schedule: {cron: '@daily'}\n",
}

// validate checks a job as the server does, with a field set to a value.
func validate(t *testing.T, f *Field, value string) error {
	t.Helper()
	read := func(source string) *apiv1.Job {
		documents, err := Parse(strings.NewReader(source), Options{AnyValue: true})
		if err != nil {
			t.Fatalf("%v\n%s", err, source)
		}
		return documents[0].Spec.(*apiv1.Job)
	}
	definition := read("name: a\nhandler: {module: m@1}\n" + companions[f.Path])
	proto.Merge(definition, read(example(jobKind, f.Path, value)))
	if err := job.Validate(definition); err != nil {
		return fmt.Errorf("%w", err)
	}
	_, err := alerts.ReadJobAlerts("default", "a", definition.Alerts)
	return err
}
