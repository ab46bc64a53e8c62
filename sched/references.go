package sched

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file finds the references to jobs and to module versions. Every function runs on
// the loop.

// shownNames bounds the names in the text of a refusal, and sentNames the names in its
// detail.
const (
	shownNames = 10
	sentNames  = 100
)

// referenced returns the error for the deletion of an object that the objects in names
// refer to; nil: names is empty. what and names are texts such as "job mail".
func referenced(what string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	shown := strings.Join(names[:min(len(names), shownNames)], ", ")
	if more := len(names) - shownNames; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return refused(codes.FailedPrecondition,
		fmt.Sprintf("%s is named by %s: change or delete these first, or delete it all the same with --force (force in the API)", what, shown),
		&apiv1.Refusal{Reason: reasonReferenced, Names: names[:min(len(names), sentNames)]})
}

// runners returns the workflows that have a job as a node now.
func (l *loop) runners(k jobKey) []*job.Job {
	of := slices.DeleteFunc(l.nodeOf[k], func(j *job.Job) bool { return !j.Current() || !slices.Contains(j.Nodes(), k.name) })
	if len(of) == 0 {
		delete(l.nodeOf, k)
		return nil
	}
	l.nodeOf[k] = of
	return of
}

// namers returns the other jobs that depend on a job or have it as a node, each once as
// the text "job NAME". It omits those for which counts returns false.
func (l *loop) namers(k jobKey, counts func(*job.Job) bool) (names []string) {
	seen := map[string]bool{k.name: true}
	for _, of := range [][]*job.Job{l.dependOn(k), l.runners(k)} {
		for _, j := range of {
			if !seen[j.Name()] {
				seen[j.Name()] = true
				if counts(j) {
					names = append(names, "job "+j.Name())
				}
			}
		}
	}
	return names
}

// deleteAsked deletes the job of a request. Without force it fails if other jobs refer to
// it.
func (l *loop) deleteAsked(req *apiv1.DeleteJobRequest) error {
	app := appOf(req.App)
	var namers []string
	if !req.Force {
		namers = l.namers(jobKey{app, req.Name}, func(*job.Job) bool { return true })
	}
	return l.deleteJob(app, req.Name, condition{ifMatch: req.IfMatch}, namers)
}

// deleteAmong deletes one of the jobs that a bulk request selects. Without force it fails
// if a job that survives the request refers to it.
func (l *loop) deleteAmong(req *apiv1.BulkJobsRequest, name string) error {
	app := appOf(req.App)
	var namers []string
	if !req.Force {
		namers = l.namers(jobKey{app, name}, func(j *job.Job) bool { return l.survives(req, j, map[string]bool{}) })
	}
	return l.deleteJob(app, name, condition{}, namers)
}

// survives reports whether a job still exists after a bulk deletion: a job that the
// request does not select, or one to which a surviving job refers. seen has the jobs that
// were visited on the way, so that circles of references end.
func (l *loop) survives(req *apiv1.BulkJobsRequest, j *job.Job, seen map[string]bool) bool {
	if !selects(req, j.Name(), j.Labels()) {
		return true
	}
	if seen[j.Name()] {
		return false
	}
	seen[j.Name()] = true
	return len(l.namers(jobKey{appOf(req.App), j.Name()}, func(j *job.Job) bool { return l.survives(req, j, seen) })) > 0
}

// jobsNaming returns the jobs that name a module version or an alias, as texts "job
// NAME".
func (a *app) jobsNaming(ref string) (names []string) {
	if a.jobsOf(ref) == 0 {
		return nil
	}
	for _, s := range a.slots {
		for j := range s.Jobs.All() {
			if j.Module() == ref {
				names = append(names, "job "+j.Name())
			}
		}
	}
	return names
}

// versionNamers returns the texts of all references to a module version: of jobs, of
// aliases, of scripts that it interprets, and of runs that have not ended.
func (l *loop) versionNamers(a *app, m *apiv1.Module) []string {
	ref := m.Name + "@" + m.Version
	names := a.jobsNaming(ref)
	for _, x := range a.aliases() {
		if x.Module == m.Name && slices.Contains(versionsOf(x), m.Version) {
			names = append(names, "alias "+job.AliasRef(x))
		}
	}
	for _, other := range l.apps {
		for _, s := range other.slots[job.ModuleSlot].Modules {
			if s.Interpreter == m.Digest && s.CollectedAt == nil {
				names = append(names, fmt.Sprintf("script %s@%s of app %s", s.Name, s.Version, other.name))
			}
		}
	}
	live := false
	for _, s := range a.slots {
		s.RunModules(func(module string) { live = live || module == ref })
	}
	if live {
		names = append(names, "runs that have not ended")
	}
	return names
}
