package sdktest

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// planned is the schedule of a job.
type planned struct {
	plan  schedule.Plan
	next  time.Time // zero: no time is planned now
	fired int64     // times that have fired since the schedule was set
}

// Advance moves the server's own clock by d. It stops at each planned time on the way: the
// schedules fire, and Advance waits for the end of the runs that they start. It panics on
// a server without [Config.Start].
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	if s.time.IsZero() {
		s.mu.Unlock()
		panic("sdktest: Advance needs a clock of the server's own: set Start of sdktest.Config")
	}
	until := s.time.Add(d)
	for {
		next := s.nextLocked()
		if next.IsZero() || next.After(until) || s.ctx.Err() != nil {
			break
		}
		if next.After(s.time) {
			s.time = next
		}
		started := s.fireLocked()
		s.mu.Unlock()
		for _, run := range started {
			<-run.ended
		}
		s.mu.Lock()
	}
	s.time = until
	s.mu.Unlock()
}

// nowLocked returns the time of the server's own clock, or real time.
func (s *Server) nowLocked() time.Time {
	if s.time.IsZero() {
		return time.Now()
	}
	return s.time
}

// planLocked checks and compiles the schedule of a job; nil: it has none.
func (s *Server) planLocked(job *apiv1.Job) (*planned, error) {
	job = proto.CloneOf(job) // Check drops an empty schedule
	if err := schedule.Check(job); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if job.Schedule == nil {
		return nil, nil
	}
	plan, err := schedule.NewPlan(job, func(name string) *schedule.Calendar {
		if dates := s.dates[job.GetApp()+"/"+name]; dates != nil {
			if c, err := schedule.CompileCalendar(proto.CloneOf(dates)); err == nil {
				return c
			}
		}
		return nil
	})
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	p := &planned{plan: plan}
	if !job.GetPaused() {
		p.next, _ = plan.First(s.nowLocked())
	}
	return p, nil
}

// scheduleLocked sets the schedule of a job; nil removes it.
func (s *Server) scheduleLocked(key string, p *planned) {
	delete(s.plans, key)
	if p != nil {
		s.plans[key] = p
	}
	s.setAlarmLocked()
}

// setAlarmLocked arms the timer for the next planned time, if time is real.
func (s *Server) setAlarmLocked() {
	if next := s.nextLocked(); s.time.IsZero() && !next.IsZero() && s.ctx.Err() == nil {
		s.alarm.Reset(time.Until(next))
	}
}

// nextLocked returns the next planned time of all jobs; zero: there is none.
func (s *Server) nextLocked() (next time.Time) {
	for _, p := range s.plans {
		if !p.next.IsZero() && (next.IsZero() || p.next.Before(next)) {
			next = p.next
		}
	}
	return next
}

// fire starts the runs that are due in real time.
func (s *Server) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.fireLocked()
		s.setAlarmLocked()
	}
}

// fireLocked starts the runs that are due, one for each job, and returns them.
func (s *Server) fireLocked() (started []*run) {
	now := s.nowLocked()
	for key, p := range s.plans {
		if p.next.IsZero() || p.next.After(now) {
			continue
		}
		job, at := s.jobs[key], p.next
		started = append(started, s.startLocked(job, job.GetInput(), "schedule", at))
		p.fired++
		p.plan = p.plan.Anchor(at)
		p.next = time.Time{}
		if p.plan.Left(p.fired) > 0 {
			p.next, _ = p.plan.After(at) // none for a delay, which counts from the end of the run
		}
	}
	return started
}

// endedLocked plans the next run of a job with a delay.
func (s *Server) endedLocked(run *run) {
	p := s.plans[run.GetApp()+"/"+run.GetJob()]
	if p == nil || !p.next.IsZero() || run.GetTrigger() != "schedule" || p.plan.Left(p.fired) == 0 {
		return
	}
	if next, ok := p.plan.AfterEnd(s.nowLocked()); ok {
		p.next = next
		s.setAlarmLocked()
	}
}

// shownLocked returns a job with its next planned time.
func (s *Server) shownLocked(job *apiv1.Job) *apiv1.Job {
	p := s.plans[job.GetApp()+"/"+job.GetName()]
	if p == nil || p.next.IsZero() {
		return job
	}
	job = proto.CloneOf(job)
	job.NextAt = timestamppb.New(p.next)
	return job
}
