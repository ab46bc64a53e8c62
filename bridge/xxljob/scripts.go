package xxljob

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// cookies are the names of the cookie of a sign-in, until version 3.2 of XXL-JOB and from 3.3.
var cookies = []string{"XXL_JOB_LOGIN_IDENTITY", "xxl_job_login_token"}

// nativePrefix precedes the name of the function of a group in the handler of a job.
const nativePrefix = "native:" + FunctionPrefix

// scripts adds the admin API that scripts use. Each call has a token of the server, which decides
// what it allows: the bridge has no permission of its own there.
func (b *Bridge) scripts(mux *http.ServeMux) {
	for _, path := range []string{"POST /login", "POST /auth/doLogin"} {
		mux.HandleFunc(path, b.login)
	}
	for path, do := range map[string]func(context.Context, *sdk.Client, *form) (any, error){
		"/jobinfo/add": b.addJob, "/jobinfo/insert": b.addJob, "/jobinfo/update": b.updateJob,
		"/jobinfo/remove": b.removeJob, "/jobinfo/delete": b.removeJob,
		"/jobinfo/start": b.startJob, "/jobinfo/stop": b.stopJob, "/jobinfo/trigger": b.triggerJob,
	} {
		mux.Handle("POST "+path, b.script(do))
	}
	mux.Handle("POST /jobgroup/pageList", b.script(b.listGroups))
	mux.Handle("GET /jobgroup/pageList", b.script(b.listGroups))
}

// script serves a call of a script.
func (b *Bridge) script(do func(context.Context, *sdk.Client, *form) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := b.client(r, tokenOf(r))
		if err != nil {
			reply(w, nil, err)
			return
		}
		defer client.Close() //nolint:errcheck // every answer has come
		f, err := parseForm(w, r)
		if err != nil {
			reply(w, nil, err)
			return
		}
		value, err := do(r.Context(), client, f)
		if page, ok := value.(groupPage); ok && err == nil {
			w.Header().Set("Content-Type", "application/json;charset=UTF-8")
			json.NewEncoder(w).Encode(page) //nolint:errcheck // the client has gone
			return
		}
		reply(w, value, err)
	})
}

// tokenOf returns the token of a call: that of the header, or that of the cookie of a sign-in.
func tokenOf(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(token)
	}
	for _, name := range cookies {
		if c, err := r.Cookie(name); err == nil {
			return c.Value
		}
	}
	return ""
}

func (b *Bridge) client(r *http.Request, token string) (*sdk.Client, error) {
	if token == "" {
		return nil, errors.New("there is no token: send it as Authorization: Bearer TOKEN, or sign in with it as the password")
	}
	return b.cfg.API(r.Context(), token)
}

// login checks a token, the password of the form, and gives it back as the cookie of later calls.
func (b *Bridge) login(w http.ResponseWriter, r *http.Request) {
	f, err := parseForm(w, r)
	if err != nil {
		reply(w, nil, err)
		return
	}
	token := strings.TrimSpace(f.text("password"))
	client, err := b.client(r, token)
	if err != nil {
		reply(w, nil, err)
		return
	}
	defer client.Close() //nolint:errcheck // every answer has come
	if err := b.mayRead(r.Context(), client); err != nil {
		reply(w, nil, fmt.Errorf("the password is not a token of this server: %w", err))
		return
	}
	for _, name := range cookies {
		http.SetCookie(w, &http.Cookie{Name: name, Value: token, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	}
	reply(w, nil, nil)
}

// mayRead returns an error if the token of a client does not allow to read the jobs of the app.
func (b *Bridge) mayRead(ctx context.Context, client *sdk.Client) error {
	for _, err := range client.Jobs(ctx, sdk.JobQuery{App: b.cfg.App, Limit: 1, NoInput: true}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// form are the fields of a call.
type form struct{ r *http.Request }

func parseForm(w http.ResponseWriter, r *http.Request) (*form, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		return nil, fmt.Errorf("the form: %w", err)
	}
	return &form{r}, nil
}

func (f *form) has(name string) bool     { return f.r.Form.Has(name) }
func (f *form) text(name string) string  { return strings.TrimSpace(f.r.Form.Get(name)) }
func (f *form) plain(name string) string { return f.r.Form.Get(name) }

func (f *form) number(name string) (int64, error) {
	text := f.text(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s %q: want a number, not negative", name, text)
	}
	return n, nil
}

// job returns the job that a call is about, by its number.
func (b *Bridge) job(ctx context.Context, client *sdk.Client, f *form) (*sdk.Job, error) {
	field := "id"
	if !f.has(field) {
		field = "ids[]"
	}
	if len(f.r.Form["ids[]"]) > 1 {
		return nil, errors.New("ids[]: want one id")
	}
	id, err := f.number(field)
	if err != nil {
		return nil, err
	}
	if id == 0 {
		return nil, errors.New("id is missing: give the number of the job")
	}
	if app, name, ok := strings.Cut(b.ids.name(int32(id)), "/"); ok && app == b.cfg.App {
		return b.own(client.Job(ctx, app, name))
	}
	// A job that neither ran here nor was made here has no number yet.
	for j, err := range client.Jobs(ctx, sdk.JobQuery{App: b.cfg.App, NoInput: true}) {
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(j.GetHandler().GetName(), nativePrefix) {
			continue
		}
		n, err := b.ids.of(b.cfg.App, j.GetName())
		if err != nil {
			return nil, err
		}
		if int64(n) == id {
			return b.own(client.Job(ctx, b.cfg.App, j.GetName()))
		}
	}
	return nil, fmt.Errorf("no job of app %s has the id %d", b.cfg.App, id)
}

// own refuses jobs that executors do not execute: a script of XXL-JOB has no business with them.
func (b *Bridge) own(j *sdk.Job, err error) (*sdk.Job, error) {
	if err == nil && !strings.HasPrefix(j.GetHandler().GetName(), nativePrefix) {
		err = fmt.Errorf("the job %s is not one of executors: its handler is %q", j.GetName(), j.GetHandler().GetName())
	}
	return j, err
}

// addJob creates a job, paused as in XXL-JOB, and answers with its number.
func (b *Bridge) addJob(ctx context.Context, client *sdk.Client, f *form) (any, error) {
	desc := or(f.text("jobDesc"), f.text("name"))
	if desc == "" {
		return nil, errors.New("jobDesc is missing: it becomes the name of the job")
	}
	name, err := b.freeName(ctx, client, desc)
	if err != nil {
		return nil, err
	}
	paused := true
	j := &sdk.Job{App: b.cfg.App, Name: name, Description: desc, Paused: &paused}
	if err := b.fill(j, f); err != nil {
		return nil, err
	}
	if _, err := client.Apply(ctx, j); err != nil {
		return nil, err
	}
	id, err := b.ids.of(b.cfg.App, name)
	return strconv.Itoa(int(id)), err
}

// freeName returns a name for a new job that no other job has.
func (b *Bridge) freeName(ctx context.Context, client *sdk.Client, desc string) (string, error) {
	base := strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			return c
		}
		return '-'
	}, desc), "-_.")
	if len(base) > 80 {
		base = strings.TrimRight(base[:80], "-_.")
	}
	if !naming.Valid(base) {
		base = fmt.Sprintf("xxl-job-%d", hashed(desc))
	}
	name := base
	for n := 2; n < 100; n++ {
		if _, err := client.Job(ctx, b.cfg.App, name); errors.Is(err, sdk.ErrNotFound) {
			return name, nil
		} else if err != nil {
			return "", err
		}
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return "", fmt.Errorf("there are 99 jobs with the name %s: choose another jobDesc", base)
}

// updateJob changes what the form has; the rest of the job stays.
func (b *Bridge) updateJob(ctx context.Context, client *sdk.Client, f *form) (any, error) {
	j, err := b.job(ctx, client, f)
	if err != nil {
		return nil, err
	}
	if desc := or(f.text("jobDesc"), f.text("name")); desc != "" {
		j.Description = desc
	}
	if err := b.fill(j, f); err != nil {
		return nil, err
	}
	_, err = client.ApplyIf(ctx, j, j.GetEtag())
	return nil, err
}

func (b *Bridge) removeJob(ctx context.Context, client *sdk.Client, f *form) (any, error) {
	j, err := b.job(ctx, client, f)
	if err != nil {
		return nil, err
	}
	return nil, client.Delete(ctx, b.cfg.App, j.GetName())
}

func (b *Bridge) startJob(ctx context.Context, client *sdk.Client, f *form) (any, error) {
	j, err := b.job(ctx, client, f)
	if err != nil {
		return nil, err
	}
	_, err = client.Resume(ctx, b.cfg.App, j.GetName())
	return nil, err
}

func (b *Bridge) stopJob(ctx context.Context, client *sdk.Client, f *form) (any, error) {
	j, err := b.job(ctx, client, f)
	if err != nil {
		return nil, err
	}
	_, err = client.Pause(ctx, b.cfg.App, j.GetName())
	return nil, err
}

// triggerJob starts a run; executorParam, when the form has it, replaces that of the job.
func (b *Bridge) triggerJob(ctx context.Context, client *sdk.Client, f *form) (any, error) {
	j, err := b.job(ctx, client, f)
	if err != nil {
		return nil, err
	}
	if f.text("addressList") != "" {
		return nil, errors.New("addressList: the bridge chooses among the registered executors; leave it empty")
	}
	t := sdk.Trigger{App: b.cfg.App, Job: j.GetName()}
	if f.plain("executorParam") != "" {
		in, err := parseInput([]byte(j.GetInput()))
		if err != nil {
			return nil, err
		}
		in.Params = f.plain("executorParam")
		if t.Input, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	_, err = client.Trigger(ctx, t)
	return nil, err
}

// groupPage lists groups of executors, without the code and the message of other answers.
type groupPage struct {
	Total    int         `json:"recordsTotal"`
	Filtered int         `json:"recordsFiltered"`
	Data     []groupItem `json:"data"`
}

type groupItem struct {
	ID        int32    `json:"id"`
	Group     string   `json:"appname"`
	Title     string   `json:"title"`
	Type      int      `json:"addressType"` // 0: the executors register themselves
	Executors []string `json:"registryList"`
}

// listGroups lists the groups whose name has the appname of the form in it.
func (b *Bridge) listGroups(ctx context.Context, client *sdk.Client, f *form) (any, error) {
	if err := b.mayRead(ctx, client); err != nil {
		return nil, err
	}
	page := groupPage{Data: []groupItem{}}
	for _, name := range b.registry.names() {
		if !strings.Contains(name, f.text("appname")) {
			continue
		}
		id, err := b.ids.ofGroup(name)
		if err != nil {
			return nil, err
		}
		page.Data = append(page.Data, groupItem{ID: id, Group: name, Title: name, Executors: b.registry.executors(name)})
	}
	page.Total, page.Filtered = len(page.Data), len(page.Data)
	return page, nil
}

// fill sets what the fields of a form say. A field that the form lacks changes nothing.
func (b *Bridge) fill(j *sdk.Job, f *form) error {
	if f.text("childJobId") != "" {
		return errors.New("childJobId: not supported here, use `dependency` in the document of the child job")
	}
	if err := b.fillHandler(j, f); err != nil {
		return err
	}
	if err := b.fillSchedule(j, f); err != nil {
		return err
	}
	if f.has("author") {
		j.Owner = f.text("author")
	}
	if f.has("executorFailRetryCount") {
		n, err := f.number("executorFailRetryCount")
		if err != nil {
			return err
		}
		j.Retry = &sdk.Retry{Max: int32(n)}
	}
	return nil
}

// fillHandler sets the group of executors and the input.
func (b *Bridge) fillHandler(j *sdk.Job, f *form) error {
	if f.has("jobGroup") || j.GetHandler() == nil {
		group, err := b.group(f.text("jobGroup"))
		if err != nil {
			return err
		}
		j.Handler = &sdk.Handler{Name: nativePrefix + group}
	}
	in := Input{Route: routeFirst, Block: blockSerial, GlueType: glueBean}
	if j.GetInput() != "" {
		if err := json.Unmarshal([]byte(j.GetInput()), &in); err != nil {
			return fmt.Errorf("the input of the job: %w", err)
		}
	}
	for field, to := range map[string]*string{
		"executorHandler": &in.Handler, "executorRouteStrategy": &in.Route, "executorBlockStrategy": &in.Block, "glueType": &in.GlueType,
	} {
		if f.text(field) != "" {
			*to = f.text(field)
		}
	}
	if f.has("executorParam") {
		in.Params = f.plain("executorParam")
	}
	if f.has("executorTimeout") {
		n, err := f.number("executorTimeout")
		if err != nil {
			return err
		}
		in.Timeout = n
	}
	if err := in.check(); err != nil {
		return err
	}
	j.Overlap = &sdk.Overlap{Policy: map[string]string{blockSerial: "queue", blockDiscard: "discard", blockCover: "cover"}[in.Block]}
	if in.Timeout > 0 {
		// The executor ends the run first, and then the bridge.
		j.Timeout = (time.Duration(in.Timeout)*time.Second + 6*lateness).String()
	} else if j.GetTimeout() == "" {
		j.Timeout = longest.String()
	}
	b2, err := json.Marshal(in)
	j.Input = string(b2)
	return err
}

// longest is the timeout of a job without executorTimeout, the longest that a server accepts.
const longest = 30 * 24 * time.Hour

// group returns the APPNAME that a form names by number or by name.
func (b *Bridge) group(text string) (string, error) {
	id, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return text, checkGroup(text)
	}
	for _, name := range b.registry.names() {
		n, err := b.ids.ofGroup(name)
		if err != nil {
			return "", err
		}
		if int64(n) == id {
			return name, nil
		}
	}
	if name, ok := strings.CutPrefix(b.ids.name(int32(id)), "group "); ok {
		return name, nil
	}
	return "", fmt.Errorf("jobGroup %d: no group of executors has this number; the APPNAME of the group is accepted too", id)
}

// fillSchedule sets the schedule and the misfire policy.
func (b *Bridge) fillSchedule(j *sdk.Job, f *form) error {
	kind, conf := f.text("scheduleType"), f.text("scheduleConf")
	if cron := f.text("jobCron"); kind == "" && cron != "" { // before version 2.3
		kind, conf = "CRON", cron
	}
	switch kind {
	case "":
	case "NONE":
		j.Schedule = nil
	case "CRON":
		j.Schedule = &sdk.Schedule{Cron: conf, Zone: cmp.Or(b.cfg.Zone, "UTC")}
	case "FIX_RATE":
		n, err := strconv.Atoi(conf)
		if err != nil || n < 1 {
			return fmt.Errorf("scheduleConf %q: want a number of seconds for FIX_RATE", conf)
		}
		j.Schedule = &sdk.Schedule{Every: fmt.Sprintf("%ds", n)}
	default:
		return fmt.Errorf("scheduleType %q: want NONE, CRON or FIX_RATE", kind)
	}
	switch policy := f.text("misfireStrategy"); policy {
	case "":
	case "DO_NOTHING":
		j.Misfire = &sdk.Misfire{Policy: "skip", Threshold: "5s"}
	case "FIRE_ONCE_NOW":
		j.Misfire = &sdk.Misfire{Policy: "fire_once", Threshold: "5s"}
	default:
		return fmt.Errorf("misfireStrategy %q: want DO_NOTHING or FIRE_ONCE_NOW", policy)
	}
	return nil
}
