package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// bucketsView is the list of the buckets of an app.
type bucketsView struct {
	Buckets      []*apiv1.ListBucketsResponse_Bucket // the first pageSize
	Total        int
	Bytes, Quota int64
	Form         valueForm
	Refused      string
}

// valueForm is the form that sets a value, as the visitor filled it in.
type valueForm struct {
	Bucket, Key, Value string
}

// bucketView is the list of the entries of a bucket, without their values.
type bucketView struct {
	Bucket, Prefix string
	Values         []*apiv1.Value
	Next           string // token of the next page
	Paged          bool   // this is not the first page
	Form           valueForm
	Done           accessDone
}

// valueView is a value, and the form that replaces it.
type valueView struct {
	*apiv1.Value
	Shown    payload
	Editable bool   // a form of a browser would send the value as it is
	Text     string // in the form: the value, or the visitor's input
	Refused  string
	Moved    bool // another caller has changed the value since the visitor saw it
	Done     accessDone
}

// valueAddress returns the address of the page of a value. The key is a parameter, because it may
// contain what a path cannot.
func valueAddress(app, bucket, key string) string {
	return withQuery(href("apps", app, "values", bucket, "value"), "key", key)
}

// At returns the address of the page of an entry.
func (bucketView) At(x *apiv1.Value) string { return valueAddress(x.App, x.Bucket, x.Key) }

// DeleteAt returns the address of the page that asks before the value is deleted, if it is still
// the one that the visitor sees.
func (x valueView) DeleteAt() string {
	return withQuery(href("apps", x.App, "values", x.Bucket, "delete"), "key", x.Key, "version", strconv.FormatUint(x.Version, 10))
}

func (c *console) bucketsPage(v *visit) error { return c.showBuckets(v, http.StatusOK, bucketsView{}) }

func (c *console) showBuckets(v *visit, code int, view bucketsView) error {
	answer, err := c.values.ListBuckets(v.ctx, &apiv1.ListBucketsRequest{App: v.app})
	if err != nil {
		return err
	}
	view.Total, view.Bytes, view.Quota = len(answer.Buckets), answer.Bytes, answer.Quota
	view.Buckets = answer.Buckets[:min(view.Total, pageSize)]
	return c.showStatus(v, code, "buckets", "values", view)
}

func (c *console) bucketPage(v *visit) error {
	q := v.r.URL.Query()
	view := bucketView{Bucket: v.r.PathValue("bucket"), Prefix: q.Get("prefix"), Paged: q.Get("page") != ""}
	view.Form.Bucket = view.Bucket
	view.Done, _ = noticeOf[accessDone](v)
	answer, err := c.values.ListValues(v.ctx, &apiv1.ListValuesRequest{
		App: v.app, Bucket: view.Bucket, Prefix: view.Prefix, PageToken: q.Get("page"), PageSize: pageSize,
	})
	if err != nil {
		return err
	}
	view.Values, view.Next = answer.Values, answer.NextPageToken
	return c.show(v, "bucket", "values", view)
}

func (c *console) valuePage(v *visit) error {
	view := valueView{}
	view.Done, _ = noticeOf[accessDone](v)
	return c.showValue(v, http.StatusOK, v.r.PathValue("bucket"), v.r.URL.Query().Get("key"), view)
}

// showValue shows a value as it is now. After a refused form the view has the visitor's input.
func (c *console) showValue(v *visit, code int, bucket, key string, view valueView) error {
	x, err := c.values.GetValue(v.ctx, &apiv1.GetValueRequest{App: v.app, Bucket: bucket, Key: key})
	if err != nil {
		return err
	}
	view.Value, view.Shown = x, newPayload(x.Value, x.ValueBytes)
	view.Editable = len(x.ValueBytes) == 0 && !strings.ContainsAny(x.Value, "\r\x00")
	if code == http.StatusOK {
		view.Text = x.Value
	}
	return c.showStatus(v, code, "value", "values", view)
}

// valueDownload sends a value as a file.
func (c *console) valueDownload(v *visit) error {
	x, err := c.values.GetValue(v.ctx, &apiv1.GetValueRequest{App: v.app, Bucket: v.r.PathValue("bucket"), Key: v.r.URL.Query().Get("key")})
	if err != nil {
		return err
	}
	body := x.ValueBytes
	if len(body) == 0 {
		body = []byte(x.Value)
	}
	attachment(v.w, "value.bin", "application/octet-stream")
	_, _ = v.w.Write(body)
	return nil
}

// putValue sets a value, if it is still the one that the visitor saw; without a version, if there is
// none. If another caller was faster, the page has both values, and the form replaces the new one.
func (c *console) putValue(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f := v.r.PostForm
	form := valueForm{strings.TrimSpace(f.Get("bucket")), f.Get("key"), strings.ReplaceAll(f.Get("value"), "\r\n", "\n")} // browsers send CRLF
	seen, err := seenVersion(f)
	if err != nil {
		return err
	}
	_, err = c.values.PutValue(v.ctx, &apiv1.PutValueRequest{App: v.app, Bucket: form.Bucket, Key: form.Key, Value: form.Value, ExpectVersion: &seen})
	if err == nil {
		v.redirectWith(valueAddress(v.app, form.Bucket, form.Key), accessDone{Key: "value.set"})
		return nil
	}
	why, ok := mendable(err)
	moved := status.Code(err) == codes.Aborted
	if moved {
		err := c.showValue(v, http.StatusConflict, form.Bucket, form.Key, valueView{Text: form.Value, Moved: true})
		if status.Code(err) != codes.NotFound {
			return err
		}
		why, ok = "another caller has deleted the value meanwhile: setting it now creates it again", true
	}
	switch {
	case !ok:
		return err
	case seen != 0 && !moved:
		err := c.showValue(v, http.StatusUnprocessableEntity, form.Bucket, form.Key, valueView{Text: form.Value, Refused: why})
		if status.Code(err) != codes.NotFound {
			return err
		}
	}
	return c.showBuckets(v, http.StatusUnprocessableEntity, bucketsView{Form: form, Refused: why})
}

// seenVersion reads the version that the visitor saw; 0: there was no value.
func seenVersion(f url.Values) (uint64, error) {
	text := f.Get("version")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "version: %.40q is not a version of a value", text)
	}
	return n, nil
}

func (c *console) deleteValuePage(v *visit) error {
	bucket, key := v.r.PathValue("bucket"), v.r.URL.Query().Get("key")
	return c.show(v, "confirm", "values", confirmView{
		Question: "value.delete.question", Effect: "value.delete.effect", Button: "value.delete.button",
		Subject: bucket + "/" + key, Back: valueAddress(v.app, bucket, key),
	})
}

// deleteValue deletes a value, if it is still the one that the visitor saw.
func (c *console) deleteValue(v *visit) error {
	q, bucket := v.r.URL.Query(), v.r.PathValue("bucket")
	seen, err := seenVersion(q)
	if err != nil {
		return err
	}
	_, err = c.values.DeleteValue(v.ctx, &apiv1.DeleteValueRequest{App: v.app, Bucket: bucket, Key: q.Get("key"), ExpectVersion: &seen})
	if status.Code(err) == codes.Aborted {
		x, err := c.values.GetValue(v.ctx, &apiv1.GetValueRequest{App: v.app, Bucket: bucket, Key: q.Get("key")})
		if err != nil {
			return err
		}
		return c.showValue(v, http.StatusConflict, bucket, x.Key, valueView{Text: x.Value, Moved: true})
	}
	if err != nil {
		return err
	}
	v.redirectWith(href("apps", v.app, "values", bucket), accessDone{"value.deleted", q.Get("key")})
	return nil
}
