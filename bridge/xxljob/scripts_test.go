package xxljob_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// form sends a form to the bridge, as a script does.
func (w *world) form(path, token string, fields ...string) (code int, msg string) {
	w.t.Helper()
	v := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		v.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(v.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return w.answer(r)
}

func TestScripts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.executor("billing", "127.0.0.1:9999")
		code, msg := w.form("/xxl-job-admin/jobinfo/add", "scripts",
			"jobGroup", "billing", "jobDesc", "close the day", "author", "ops", "scheduleType", "CRON", "scheduleConf", "0 0 1 * * ?",
			"misfireStrategy", "DO_NOTHING", "executorRouteStrategy", "ROUND", "executorHandler", "closeHandler", "executorParam", "x=1",
			"executorBlockStrategy", "DISCARD_LATER", "executorTimeout", "60", "executorFailRetryCount", "2", "glueType", "BEAN")
		if code != 200 {
			t.Fatalf("add: %d %s", code, msg)
		}
		id := strings.Trim(msg, `"`)
		get := func() *apiv1.Job {
			t.Helper()
			j, err := w.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "close-the-day"})
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		j := get()
		want := `{"executorHandler":"closeHandler","executorParams":"x=1","executorRouteStrategy":"ROUND","executorBlockStrategy":"DISCARD_LATER","executorTimeout":60,"glueType":"BEAN"}`
		if j.GetInput() != want || !j.GetPaused() || j.GetSchedule().GetCron() != "0 0 1 * * ?" || j.GetOverlap().GetPolicy() != "discard" || j.GetRetry().GetMax() != 2 ||
			j.GetMisfire().GetPolicy() != "skip" || j.GetOwner() != "ops" || j.GetDescription() != "close the day" || j.GetHandler().GetName() != "native:xxl-job.billing" {
			t.Errorf("add made %v", j)
		}
		for _, step := range []struct {
			path   string
			fields []string
		}{
			{"/jobinfo/start", []string{"id", id}},
			{"/jobinfo/update", []string{"id", id, "executorParam", "x=2", "scheduleType", "FIX_RATE", "scheduleConf", "90"}},
		} {
			if code, msg := w.form(step.path, "scripts", step.fields...); code != 200 {
				t.Errorf("%s: %d %s", step.path, code, msg)
			}
		}
		if j := get(); j.GetPaused() || j.GetSchedule().GetEvery() != "90s" || !strings.Contains(j.GetInput(), `"x=2"`) || j.GetRetry().GetMax() != 2 {
			t.Errorf("start and update made %v", j)
		}
		if code, msg := w.form("/jobinfo/stop", "scripts", "ids[]", id); code != 200 || !get().GetPaused() {
			t.Errorf("stop: %d %s", code, msg)
		}
		if code, msg := w.form("/jobinfo/trigger", "scripts", "id", id, "executorParam", "once", "addressList", ""); code != 200 {
			t.Errorf("trigger: %d %s", code, msg)
		}
		r := <-e.ran
		if r.Params != "once" || r.Handler != "closeHandler" {
			t.Errorf("the executor got %+v", r)
		}
		e.done(r, 200, "")
		time.Sleep(time.Second)
		if code, msg := w.form("/jobinfo/remove", "scripts", "id", id); code != 200 {
			t.Errorf("remove: %d %s", code, msg)
		}
		if code, _ := w.form("/jobinfo/start", "scripts", "id", id); code != 500 {
			t.Error("a removed job was started")
		}
	})
}

func TestScriptsFindJobsThatTheyDidNotMake(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := w.executor("billing", "127.0.0.1:9999")
		w.apply("bill", "billing", input("h", "", ""))
		id := w.trigger("bill")
		r := <-e.ran
		e.done(r, 200, "")
		w.wait(id)
		// A bridge without the numbers of the first finds the same one.
		w.endBridge()
		w.dir += "/other"
		w.startBridge()
		number, err := json.Marshal(r.JobID)
		if err != nil {
			t.Fatal(err)
		}
		if code, msg := w.form("/jobinfo/stop", "scripts", "id", string(number)); code != 200 {
			t.Errorf("stop %s: %d %s", number, code, msg)
		}
		if _, err := w.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "other", Handler: &apiv1.Handler{Name: "native:other"}}}); err != nil {
			t.Fatal(err)
		}
		if code, _ := w.form("/jobinfo/remove", "scripts", "id", "17"); code != 500 {
			t.Error("a job with no such number was removed")
		}
	})
}

func TestScriptsNeedAToken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.executor("billing", "127.0.0.1:9999")
		for _, path := range []string{"/jobinfo/add", "/jobinfo/update", "/jobinfo/remove", "/jobinfo/start", "/jobinfo/stop", "/jobinfo/trigger", "/jobgroup/pageList"} {
			for _, token := range []string{"", "wrong", accessToken} {
				if code, msg := w.form(path, token, "id", "1"); code != 500 || msg == "" {
					t.Errorf("%s with the token %q: %d %s", path, token, code, msg)
				}
			}
		}
		if code, _ := w.form("/login", "", "userName", "admin", "password", "123456"); code != 500 {
			t.Error("a sign-in with a password that is no token")
		}
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("userName=admin&password=scripts"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		rec := httptest.NewRecorder()
		w.bridge.ServeHTTP(rec, r)
		if len(rec.Result().Cookies()) != 2 {
			t.Fatalf("the sign-in gives no cookies: %s", rec.Body)
		}
		for _, c := range rec.Result().Cookies() {
			r := httptest.NewRequest(http.MethodPost, "/jobgroup/pageList", strings.NewReader("appname=bill"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.AddCookie(c)
			rec := httptest.NewRecorder()
			w.bridge.ServeHTTP(rec, r)
			if !strings.Contains(rec.Body.String(), `"appname":"billing"`) || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
				t.Errorf("with the cookie %v: %s", c, rec.Body)
			}
		}
		for field, value := range map[string]string{
			"glueType": "GLUE_SHELL", "scheduleType": "SOMETIMES", "executorRouteStrategy": "NEAREST", "executorTimeout": "-1", "misfireStrategy": "X",
			"childJobId": "3", "jobGroup": "99",
		} {
			fields := []string{"jobGroup", "billing", "jobDesc", "bad", "executorHandler", "h", field, value}
			if code, msg := w.form("/jobinfo/add", "scripts", fields...); code != 500 || !strings.Contains(msg, field) {
				t.Errorf("%s %s: %d %s", field, value, code, msg)
			}
		}
	})
}
