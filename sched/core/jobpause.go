package core

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file has the pauses of jobs. The definition of a job has its pause, and the server resumes
// the job at the end with a change of the definition.

// PauseJob pauses a job, or replaces its pause. reason may be "", and until nil.
func (cm *Commands) PauseJob(app, name, reason string, until *timestamppb.Timestamp) (*apiv1.Job, error) {
	if err := CheckPause(reason, until, cm.l.clock.now); err != nil {
		return nil, err
	}
	var p *apiv1.JobPause
	if reason != "" || until != nil {
		p = &apiv1.JobPause{Reason: reason, Since: timestamppb.New(cm.l.clock.now), Until: until, By: cm.l.commits.by.Author}
	}
	return cm.setPaused(app, name, true, p)
}

// ResumeJob resumes a paused job.
func (cm *Commands) ResumeJob(app, name string) (*apiv1.Job, error) {
	return cm.setPaused(app, name, false, nil)
}

func (cm *Commands) setPaused(app, name string, paused bool, p *apiv1.JobPause) (*apiv1.Job, error) {
	if err := cm.l.Holds.Free(app); err != nil {
		return nil, err
	}
	j := cm.l.State.Job(app, name)
	if j == nil {
		return nil, noJob(app, name)
	}
	old := j.Definition()
	def := job.Definition(old)
	def.Paused, def.Pause = proto.Bool(paused), p
	if before := old.GetPause(); old.GetPaused() && before != nil && p != nil { // the pause goes on
		p.Since = before.Since
	}
	m, _, err := cm.ApplyJob(JobChange{Def: def, pausing: true})
	return m, err
}

// resumes adds the timer that ends the pause of a job, if it has an end.
func (tm *timing) resumes(j *job.Job) {
	if at := j.ResumesMs(); at > 0 && j.Current() {
		tm.wheel.add(at, resumeTimer{jobKey{j.Slot().App, j.Name()}, at})
	}
}

// resumeTimer ends the pause of a job with an ordinary change of the job.
type resumeTimer struct {
	key  jobKey
	atMs int64
}

// resumeAgain is the time after which a resumption that failed is tried again, in ms.
const resumeAgain = 10_000

func (x resumeTimer) fire(l *Loop) {
	switch {
	case !x.holds(l, 0):
		return
	case l.commits.stage.bytes >= 2*stageBytes: // many jobs resume at this time
		l.timing.after(1, x)
		return
	}
	_, err := l.Commands.ResumeJob(x.key.app, x.key.name)
	if err == nil {
		return
	}
	l.timing.after(resumeAgain, x)
	l.cfg.Logger.Warn("a job is not resumed at the end of its pause, and the server tries again", "app", x.key.app, "job", x.key.name, "error", err)
}

func (x resumeTimer) holds(l *Loop, _ int64) bool {
	j := l.State.Job(x.key.app, x.key.name)
	return j != nil && j.ResumesMs() == x.atMs && here(j.Slot())
}
