package core

import (
	"cmp"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/reason"
)

// This file has the pauses of apps. A pause ends without a record: whether it lasts follows from
// its end and the clock (ADR 68).

// CheckPause checks a pause of an app or of a job.
func CheckPause(reason string, until *timestamppb.Timestamp, now time.Time) error {
	switch {
	case len(reason) > maxNote:
		return status.Errorf(codes.InvalidArgument, "the reason has %d bytes, the limit is %d", len(reason), maxNote)
	case until == nil:
	case !until.IsValid():
		return status.Error(codes.InvalidArgument, "until is no valid time")
	case !until.AsTime().After(now):
		return status.Errorf(codes.InvalidArgument, "until is %s, which has passed: want a time in the future, or none", until.AsTime().Format(time.RFC3339))
	}
	return nil
}

// PauseApp pauses an app from now on, or replaces its pause, whose begin stays. It recalls the
// tasks that hosts have not started. until may be nil.
func (cm *Commands) PauseApp(name, by, reason string, until *timestamppb.Timestamp) (*apiv1.App, error) {
	a, err := cm.pausable(name)
	if err != nil {
		return nil, err
	}
	now := cm.l.clock.now
	if err := CheckPause(reason, until, now); err != nil {
		return nil, err
	}
	p := &apiv1.AppPause{Reason: reason, Since: timestamppb.New(now), Until: until, By: by}
	if before := a.pausedAt(now.UnixMilli()); before != nil {
		p.Since = before.Since
	}
	cm.pause(a, p)
	return a.message(cm.l.clock.nowMs), nil
}

// ResumeApp ends the pause of an app. Without one it changes nothing.
func (cm *Commands) ResumeApp(name string) (*apiv1.App, error) {
	a, err := cm.pausable(name)
	if err != nil {
		return nil, err
	}
	if p := a.pausedAt(cm.l.clock.nowMs); p != nil {
		p = proto.CloneOf(p)
		p.Until = timestamppb.New(cm.l.clock.now)
		cm.pause(a, p)
	}
	return a.message(cm.l.clock.nowMs), nil
}

func (cm *Commands) pausable(name string) (*app, error) {
	if err := cm.l.commits.refuseChange(); err != nil {
		return nil, err
	}
	a := cm.l.State.apps[name]
	if a == nil || a.gone() {
		return nil, NoApp(name)
	}
	return a, nil
}

// pause records a pause. One whose end has come ends the one before.
func (cm *Commands) pause(a *app, p *apiv1.AppPause) {
	cm.l.commits.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_AppPause{AppPause: p}})
	cm.l.commits.onDurable(func(err error) {
		if err == nil {
			cm.l.timing.paused(a)
		}
	})
}

// paused follows a change of the pause of an app, or the begin of the ownership of its slots.
func (tm *timing) paused(a *app) {
	l := tm.l
	if a.alerts != nil {
		l.Alerts.redefine(a)
	}
	p := a.pausedAt(l.clock.nowMs)
	if p == nil {
		return
	}
	if p.Until != nil {
		l.timing.wheel.add(p.Until.AsTime().UnixMilli(), pauseTimer{a, p})
	}
	for _, h := range l.Sessions.hosts {
		if !h.Hello.GetRecalls() {
			continue
		}
		for _, r := range h.Held.Runs {
			if ownerOf(r.Slot()) == a {
				l.Sessions.recall(h, r)
			}
		}
	}
}

// pauseTimer begins a turn at the end of a pause, which dispatches the runs that have waited.
type pauseTimer struct {
	a *app
	p *apiv1.AppPause
}

func (x pauseTimer) fire(*Loop) {}

func (x pauseTimer) holds(*Loop, int64) bool { return x.a.slots[job.ModuleSlot].Pause == x.p }

// pauseText says until when and why an app is paused.
func pauseText(p *apiv1.AppPause) string {
	text := "the app was paused"
	if p.Until != nil {
		text += " until " + p.Until.AsTime().Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// whyPaused returns why a run waits for the end of a pause.
func whyPaused(app string, p *apiv1.AppPause) reason.Reason {
	values := []string{"app", app, "by", p.By, "reason", cmp.Or(p.Reason, "none was given")}
	if p.Until == nil {
		return reason.New(reason.AppPaused, values...)
	}
	return reason.New(reason.AppPausedUntil, append(values, "until", p.Until.AsTime().Format(time.RFC3339))...)
}
