package sched

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/state"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// alertSource implements [sender.Source] with the loop of the partition.
type alertSource struct {
	loop     *core.Loop
	services *api.Services
	edges    definition.Edges // without secrets
}

// Take implements [sender.Source].
func (a alertSource) Take(ctx context.Context) ([]state.Work, time.Time, error) {
	type taken struct {
		work []state.Work
		next time.Time
	}
	t, err := core.Ask(ctx, a.loop, func(l *core.Loop) (taken, error) {
		work, next := l.Alerts.Take(l.Alerts.TurnTime())
		return taken{work, next}, nil
	})
	return t.work, t.next, err
}

// Open implements [sender.Source]. A secret is opened for each message, so that a new value
// holds from the next one on.
func (a alertSource) Open(ctx context.Context, app, name string) (channel.Channel, error) {
	type found struct {
		channel *apiv1.AlertChannel
		secrets map[string]*apiv1.SecretRow
	}
	f, err := core.Ask(ctx, a.loop, func(l *core.Loop) (found, error) {
		c := l.Alerts.Channel(app, name)
		if c == nil {
			return found{}, state.ErrNoChannel
		}
		f := found{proto.CloneOf(c), map[string]*apiv1.SecretRow{}}
		for _, secret := range definition.SecretsOf(c) {
			f.secrets[secret] = l.Guests.Secret(app, secret)
		}
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	edges := a.edges
	edges.Secret = func(_ context.Context, secret string) (string, error) {
		row := f.secrets[secret]
		if row == nil {
			return "", fmt.Errorf("there is no secret %s in app %s: wheelwork secret set %s", secret, app, secret)
		}
		value, err := a.services.OpenSecret(app, row)
		return string(value), err
	}
	return definition.Open(ctx, f.channel, edges)
}

// Done implements [sender.Source].
func (a alertSource) Done(ctx context.Context, w state.Work, at time.Time, r channel.Result) error {
	_, err := core.Ask(ctx, a.loop, func(l *core.Loop) (struct{}, error) {
		l.Alerts.Sent(w, at, r)
		return struct{}{}, nil
	})
	return err
}
