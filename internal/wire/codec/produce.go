package codec

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire"
	"github.com/wheelworkhq/wheelwork/internal/wire/fields"
)

// The messages of producers.

func appendRequest(b []byte, m *apiv1.ProduceRequest) ([]byte, bool) {
	b = wire.Int(b, fields.ProduceRequestNumber, int64(m.Number))
	for _, c := range m.Commands {
		k, ok := c.Kind.(*apiv1.Command_Trigger)
		if !ok || c.Attribution != nil || !plain(c) || !plain(k.Trigger) || k.Trigger.Wait != "" || !valid(k.Trigger.App, k.Trigger.Name, k.Trigger.GetInput(), k.Trigger.IdempotencyKey, c.Trace.GetParent(), c.Trace.GetState()) ||
			c.Trace != nil && !plain(c.Trace) {
			return b, false
		}
		var command, trigger int
		b, command = wire.Begin(b, fields.ProduceRequestCommands)
		b, trigger = wire.Begin(b, fields.CommandTrigger)
		b = appendTrigger(b, k.Trigger)
		b = wire.End(b, trigger)
		if c.Trace != nil {
			var trace int
			b, trace = wire.Begin(b, fields.CommandTrace)
			b = wire.Text(b, fields.TraceContextParent, c.Trace.Parent)
			b = wire.Text(b, fields.TraceContextState, c.Trace.State)
			b = wire.End(b, trace)
		}
		b = wire.End(b, command)
	}
	return wire.Text(b, fields.ProduceRequestAck, m.Ack), plain(m) && valid(m.Ack)
}

func appendTrigger(b []byte, t *apiv1.TriggerJobRequest) []byte {
	b = wire.Text(b, fields.TriggerJobRequestApp, t.App)
	b = wire.Text(b, fields.TriggerJobRequestName, t.Name)
	if t.Input != nil { // an empty input is not the same as none
		b = protowire.AppendString(protowire.AppendTag(b, fields.TriggerJobRequestInput, protowire.BytesType), *t.Input)
	}
	if t.InputBytes != nil {
		b = protowire.AppendBytes(protowire.AppendTag(b, fields.TriggerJobRequestInputBytes, protowire.BytesType), t.InputBytes)
	}
	return wire.Text(b, fields.TriggerJobRequestIdempotencyKey, t.IdempotencyKey)
}

// trigger is a command with its parts, so that all of them are allocated together.
type trigger struct {
	command apiv1.Command
	kind    apiv1.Command_Trigger
	request apiv1.TriggerJobRequest
}

func readRequest(r *wire.Reader, m *apiv1.ProduceRequest) bool {
	var triggers chunk[trigger]
	for r.Next() {
		switch r.Field {
		case fields.ProduceRequestNumber:
			m.Number = uint64(r.Int())
		case fields.ProduceRequestCommands:
			c := r.Message()
			t := triggers.next()
			if !readTrigger(&c, &t.command, &t.request) {
				return false
			}
			t.kind.Trigger, t.command.Kind = &t.request, &t.kind
			m.Commands = append(m.Commands, &t.command)
		case fields.ProduceRequestAck:
			m.Ack = r.Text()
		default:
			r.Fail()
		}
	}
	return !r.Failed()
}

// readTrigger reads a command that is a trigger.
func readTrigger(c *wire.Reader, command *apiv1.Command, t *apiv1.TriggerJobRequest) bool {
	if !c.Next() || c.Field != fields.CommandTrigger {
		return false
	}
	r := c.Message()
	for r.Next() {
		switch r.Field {
		case fields.TriggerJobRequestApp:
			t.App = r.Text()
		case fields.TriggerJobRequestName:
			t.Name = r.Text()
		case fields.TriggerJobRequestInput:
			t.Input = proto.String(r.Text())
		case fields.TriggerJobRequestInputBytes:
			if t.InputBytes = r.Bytes(); t.InputBytes == nil {
				t.InputBytes = []byte{}
			}
		case fields.TriggerJobRequestIdempotencyKey:
			t.IdempotencyKey = r.Text()
		default:
			r.Fail()
		}
	}
	if r.Failed() {
		return false
	}
	for c.Next() {
		if c.Field != fields.CommandTrace || command.Trace != nil {
			return false // a command with two kinds is left to proto.Unmarshal, for which the last one counts
		}
		command.Trace = &apiv1.TraceContext{}
		for r := c.Message(); ; {
			if !r.Next() {
				if r.Failed() {
					return false
				}
				break
			}
			switch r.Field {
			case fields.TraceContextParent:
				command.Trace.Parent = r.Text()
			case fields.TraceContextState:
				command.Trace.State = r.Text()
			default:
				return false
			}
		}
	}
	return !c.Failed()
}

func appendResponse(b []byte, m *apiv1.ProduceResponse) ([]byte, bool) {
	b = wire.Int(b, fields.ProduceResponseNumber, int64(m.Number))
	for _, res := range m.Results {
		if !plain(res) || !valid(res.Error, res.Result, res.RunId) {
			return b, false
		}
		var from int
		b, from = wire.Begin(b, fields.ProduceResponseResults)
		b = wire.Int(b, fields.CommandResultCode, int64(res.Code))
		b = wire.Text(b, fields.CommandResultError, res.Error)
		b = wire.Text(b, fields.CommandResultResult, res.Result)
		b = wire.Text(b, fields.CommandResultRunId, res.RunId)
		b = wire.Int(b, fields.CommandResultMessage, int64(res.Message))
		b = wire.End(b, from)
	}
	return wire.Text(b, fields.ProduceResponseSync, m.Sync), plain(m) && valid(m.Sync)
}

func readResponse(r *wire.Reader, m *apiv1.ProduceResponse) bool {
	var results chunk[apiv1.CommandResult]
	var result string
	for r.Next() {
		switch r.Field {
		case fields.ProduceResponseNumber:
			m.Number = uint64(r.Int())
		case fields.ProduceResponseResults:
			res := results.next()
			in := r.Message()
			for in.Next() {
				switch in.Field {
				case fields.CommandResultCode:
					res.Code = int32(in.Int())
				case fields.CommandResultError:
					res.Error = in.Text()
				case fields.CommandResultResult:
					result = again(in.Text(), result)
					res.Result = result
				case fields.CommandResultRunId:
					res.RunId = in.Text()
				case fields.CommandResultMessage:
					res.Message = uint64(in.Int())
				default:
					in.Fail()
				}
			}
			if in.Failed() {
				return false
			}
			m.Results = append(m.Results, res)
		case fields.ProduceResponseSync:
			m.Sync = r.Text()
		default:
			r.Fail()
		}
	}
	return !r.Failed()
}
