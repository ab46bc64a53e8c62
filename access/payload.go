package access

import (
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// shown returns a response about an app as a principal may see it: itself or, if the principal may
// not read payloads, a copy without the fields with the option payload.
func shown(p *Principal, app string, resp proto.Message) proto.Message {
	if p.Process.Name != "" || !has(resp.ProtoReflect().Descriptor()) || p.May("payload.read", app) {
		return resp
	}
	resp = proto.Clone(resp) // the server may hold the original
	hide(resp.ProtoReflect(), p.May("jobs.write", app))
	return resp
}

// hide clears the payloads in a message. definitions leaves those that belong to definitions.
func hide(m protoreflect.Message, definitions bool) {
	if !has(m.Descriptor()) {
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch payload := payloadOf(f); {
		case payload == apiv1.Payload_PAYLOAD_RUN, payload == apiv1.Payload_PAYLOAD_DEFINITION && !definitions:
			m.Clear(f)
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					hide(v.Message(), definitions)
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				hide(v.List().Get(i).Message(), definitions)
			}
		default:
			hide(v.Message(), definitions)
		}
		return true
	})
}

// namesPayload reports whether a field with the option payload is set in a message, apart from those of its
// messages.
func namesPayload(m protoreflect.Message) (found bool) {
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		found = payloadOf(f) != apiv1.Payload_PAYLOAD_NONE
		return !found
	})
	return found
}

func payloadOf(f protoreflect.FieldDescriptor) apiv1.Payload {
	p, _ := proto.GetExtension(f.Options(), apiv1.E_Payload).(apiv1.Payload)
	return p
}

// payloads says of the types of messages whether one of their fields, or of those of their
// messages, has the option payload.
var payloads sync.Map // of bool by protoreflect.FullName

func has(d protoreflect.MessageDescriptor) bool {
	if known, ok := payloads.Load(d.FullName()); ok {
		return known.(bool)
	}
	found := find(d, map[protoreflect.FullName]bool{})
	payloads.Store(d.FullName(), found)
	return found
}

// find looks for the option in the types of messages that it has not visited.
func find(d protoreflect.MessageDescriptor, visited map[protoreflect.FullName]bool) bool {
	if visited[d.FullName()] {
		return false
	}
	visited[d.FullName()] = true
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if payloadOf(f) != apiv1.Payload_PAYLOAD_NONE || f.Message() != nil && find(f.Message(), visited) {
			return true
		}
	}
	return false
}
