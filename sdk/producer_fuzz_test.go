package sdk

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// FuzzAnswer gives arbitrary answers to a message of three commands. Each command ends
// once or stays to be sent again, and the room of ended commands is free again.
func FuzzAnswer(f *testing.F) {
	for _, answer := range []*apiv1.ProduceResponse{
		{},
		{Number: 7},
		{Number: 7, Results: []*apiv1.CommandResult{{Result: "created"}, {Code: 5, Error: "no such job"}, {Result: "accepted", RunId: "1"}}},
		{Number: 7, Results: []*apiv1.CommandResult{{Result: "created"}, {Code: 14}, {Code: -1}}},
		{Number: 8, Results: []*apiv1.CommandResult{{}, {}, {}}},
	} {
		data, err := proto.Marshal(answer)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		answer := &apiv1.ProduceResponse{}
		if proto.Unmarshal(data, answer) != nil {
			t.Skip()
		}
		p := &producer{limits: limits{commands: 3, bytes: maxBatchBytes}, began: time.Now()}
		p.mu.expireAt = never
		l := &lane{p: p}
		_, job := applyCommand(&Job{Name: "a"})
		m := message{number: 7, commands: []*Pending{
			{command: job, size: 1}, {command: deleteCommand("", "a"), size: 1}, {command: Trigger{Job: "a"}.command(), size: 1},
		}}
		commands := append([]*Pending{}, m.commands...)
		l.sent, p.mu.commands, p.mu.bytes = []message{m}, 3, 3

		err := l.settle(answer)
		left := 0
		for _, c := range commands {
			if c.over != c.settled || c.over != (c.command == nil) {
				t.Errorf("half ended: %+v", c)
			}
			if !c.over {
				left++
			}
		}
		if p.mu.commands != left || p.mu.bytes != left {
			t.Errorf("%d commands and %d bytes hold room, %d are left", p.mu.commands, p.mu.bytes, left)
		}
		fits := answer.GetNumber() == 7 && len(answer.GetResults()) == 3
		switch {
		case !fits && (status.Code(err) != codes.Internal || left != 3):
			t.Errorf("an answer to something else: %v, %d commands are left", err, left)
		case fits && (status.Code(err) == codes.Unavailable) != (left > 0):
			t.Errorf("%v, %d commands are left", err, left)
		case (len(l.sent) == 0) != (left == 0):
			t.Errorf("%d messages are unanswered, %d commands are left", len(l.sent), left)
		}
	})
}
