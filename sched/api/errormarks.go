package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/state"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/errorkind"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

func (a *alertsAPI) MarkError(ctx context.Context, req *apiv1.MarkErrorRequest) (*apiv1.ErrorMark, error) {
	app, by := core.AppOf(req.App), core.AttributionOf(ctx).GetAuthor()
	if err := checkMark(req); err != nil {
		return nil, core.Invalid(err)
	}
	m := state.Mark{Fingerprint: req.Fingerprint, State: req.State, Note: req.Note, Job: req.Job, By: author(by)}
	if req.Until != nil {
		m.UntilMs = req.Until.AsTime().UnixMilli()
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ErrorMark, error) {
		err := l.Alerts.Edit(app, "error."+req.State, req.Fingerprint, func(st *state.State, now time.Time) error {
			m.AtMs = now.UnixMilli()
			if req.Until != nil && m.UntilMs <= m.AtMs {
				return core.Invalid(errors.New("until has passed: name a later time, or none"))
			}
			return st.SetMark(m, m.AtMs)
		})
		return markMessage(app, &m), alertError(err, app, req.Fingerprint)
	})
}

func checkMark(req *apiv1.MarkErrorRequest) error {
	if err := checkFingerprint(req.Fingerprint); err != nil {
		return err
	}
	switch {
	case req.State != state.Acknowledged && req.State != state.Ignored:
		return fmt.Errorf("state is %.20q, want %s or %s", req.State, state.Acknowledged, state.Ignored)
	case req.Until != nil && req.State != state.Ignored:
		return errors.New("until is for ignored only: an acknowledgement holds until the error occurs again")
	case req.Until != nil && !req.Until.IsValid():
		return errors.New("until is not valid")
	case len(req.Note) > maxReason:
		return fmt.Errorf("the note has %d bytes, the limit is %d", len(req.Note), maxReason)
	case req.Job != "":
		return naming.Check("job", req.Job)
	}
	return nil
}

func checkFingerprint(fingerprint string) error {
	if !errorkind.Valid(fingerprint) {
		return fmt.Errorf("%.40q is not the fingerprint of an error: want 16 hexadecimal digits, as `wheelwork error list` shows them", fingerprint)
	}
	return nil
}

func markMessage(app string, m *state.Mark) *apiv1.ErrorMark {
	return &apiv1.ErrorMark{
		App: app, Fingerprint: m.Fingerprint, State: m.State, Note: m.Note, Job: m.Job, MarkedBy: m.By, MarkedAt: instant(m.AtMs), Until: instant(m.UntilMs),
	}
}

func (a *alertsAPI) ListErrorMarks(ctx context.Context, req *apiv1.ListErrorMarksRequest) (*apiv1.ListErrorMarksResponse, error) {
	app := core.AppOf(req.App)
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListErrorMarksResponse, error) {
		resp := &apiv1.ListErrorMarksResponse{}
		if st := l.Alerts.Read(app); st != nil {
			for _, m := range st.Marks(l.Alerts.TurnTime().UnixMilli()) {
				resp.Marks = append(resp.Marks, markMessage(app, &m))
			}
		}
		return resp, nil
	})
}

func (a *alertsAPI) ClearErrorMark(ctx context.Context, req *apiv1.ClearErrorMarkRequest) (*apiv1.ClearErrorMarkResponse, error) {
	app := core.AppOf(req.App)
	if err := checkFingerprint(req.Fingerprint); err != nil {
		return nil, core.Invalid(err)
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ClearErrorMarkResponse, error) {
		err := l.Alerts.Edit(app, "error.cleared", req.Fingerprint, func(st *state.State, now time.Time) error {
			return st.ClearMark(req.Fingerprint, now.UnixMilli())
		})
		return &apiv1.ClearErrorMarkResponse{}, alertError(err, app, req.Fingerprint)
	})
}
