package sdktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// execute calls the function for a run: a native one, or Handle.
func (s *Server) execute(ctx context.Context, run *run, task *apiv1.Run) (string, error) {
	name, native := strings.CutPrefix(task.GetHandler(), "native:")
	if native {
		for _, h := range s.conf.Handlers {
			if h.Name() == name {
				return s.call(ctx, h, run, task)
			}
		}
	}
	switch {
	case s.conf.Handle != nil:
		return s.conf.Handle(ctx, task, func(line string) { s.addLine(run, slog.LevelInfo, line) })
	case native:
		return "", worker.WithCode(fmt.Errorf("this server has no function %s: add it to Handlers of sdktest.Config", name), "handler")
	}
	return task.GetInput(), nil
}

// call calls a native function. A panic fails the run, as in a worker.
func (s *Server) call(ctx context.Context, h worker.Handler, run *run, task *apiv1.Run) (output string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = worker.WithCode(fmt.Errorf("panic: %v", v), "panic")
		}
	}()
	t := &worker.Task{
		Run: task.GetId(), App: task.GetApp(), Job: task.GetJob(), Handler: h.Name(), Attempt: 1, MaxAttempts: int(task.GetMaxAttempts()),
		PlannedAt: task.GetPlannedAt().AsTime(), Input: []byte(task.GetInput()), Args: run.handler.GetArgs(), Env: run.handler.GetEnv(),
	}
	t.ReportTo(reports{s, run})
	out, err := h.Call(ctx, t)
	return string(out), err
}

// codeOf returns the code of a failed run.
func codeOf(err error) string {
	var e *worker.Error
	errors.As(err, &e)
	if e == nil {
		return "exit"
	}
	return cmp.Or(e.Code, "exit")
}

// reports brings the reports of a native function to its run.
type reports struct {
	s   *Server
	run *run
}

// Log implements [worker.Reporter].
func (r reports) Log(level slog.Level, line string) { r.s.addLine(r.run, level, line) }

// Progress implements [worker.Reporter].
func (r reports) Progress(done, total int64, message string) {
	r.s.update(func() { r.run.Progress = &apiv1.Progress{Done: done, Total: total, Message: message} })
}

func (s *Server) addLine(run *run, level slog.Level, line string) {
	s.update(func() {
		run.log = append(run.log, &apiv1.LogLine{
			Offset: int64(len(run.log)), Time: timestamppb.New(s.nowLocked()), Attempt: 1, Level: strings.ToLower(level.String()), Text: line,
		})
	})
}
