// Package conditions writes what a request selects as short texts, such as "prefix=nightly-", for
// pages and for audit events.
package conditions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Of returns the conditions of the runs or jobs that an operation changes.
func Of(r *apiv1.StartOperationRequest) []string {
	all := append(Fields(r.GetRuns()), Fields(r.GetJobs())...)
	if r.GetModule() != "" {
		all = append(all, "module="+r.GetModule())
	}
	if r.GetError() != "" {
		all = append(all, "error="+r.GetError())
	}
	return all
}

// beside are the fields of requests that select nothing.
var beside = []string{"app", "page_size", "page_token", "with_input", "order"}

// Fields returns the fields of a message that are set, without those of pages, in the order of their
// numbers. It leaves out the values of payloads, which the readers of an audit log need not be allowed to see.
func Fields(m proto.Message) (all []string) {
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name, value := strings.TrimSuffix(string(f.Name()), "s"), m.ProtoReflect().Get(f)
		if !m.ProtoReflect().Has(f) || slices.Contains(beside, string(f.Name())) {
			continue
		}
		if proto.GetExtension(f.Options(), apiv1.E_Payload) != apiv1.Payload_PAYLOAD_NONE {
			all = append(all, string(f.Name())+"=…")
			continue
		}
		switch {
		case f.IsMap():
			var pairs []string
			value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				pairs = append(pairs, fmt.Sprintf("%s %s=%s", name, k, v))
				return true
			})
			slices.Sort(pairs)
			all = append(all, pairs...)
		case f.IsList():
			for k := range value.List().Len() {
				if f.Message() != nil {
					all = append(all, name+"="+strings.Join(Fields(value.List().Get(k).Message().Interface()), " "))
					continue
				}
				all = append(all, fmt.Sprintf("%s=%v", name, value.List().Get(k)))
			}
		case f.Message() != nil:
			if t, ok := value.Message().Interface().(*timestamppb.Timestamp); ok {
				all = append(all, fmt.Sprintf("%s=%s", f.Name(), t.AsTime().Format(time.RFC3339)))
			}
		default:
			all = append(all, fmt.Sprintf("%s=%v", f.Name(), value))
		}
	}
	return all
}
