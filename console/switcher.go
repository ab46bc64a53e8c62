package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// switchView is the list of apps from which the visitor chooses the next one.
type switchView struct {
	Names         []string // the first pageSize that match
	Total         int      // that match
	Text, Section string   // Section is that of the page that the visitor comes from
}

// switchPage lists the apps with a text in their names, each with the address of the visitor's section
// in it: as a page, and for a script as the options of a combobox. One request makes at most two
// calls.
func (c *console) switchPage(v *visit) error {
	q := v.r.URL.Query()
	text := q.Get("q")
	text = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxPaletteText)], ""))
	answer, err := c.apps.ListApps(v.ctx, &apiv1.ListAppsRequest{})
	if err != nil {
		return err
	}
	names := make([]string, 0, len(answer.Apps)+1)
	for _, a := range answer.Apps {
		names = append(names, a.Name)
	}
	if c.visitor(v).covers(naming.DefaultApp) && !slices.Contains(names, naming.DefaultApp) {
		names = append(names, naming.DefaultApp)
	}
	names = appsWith(names, text)
	view := switchView{Names: names[:min(len(names), pageSize)], Total: len(names), Text: text, Section: q.Get("section")}
	if v.r.Header.Get("HX-Request") == "" {
		return c.show(v, "switch", view.Section, view)
	}
	c.render(v.w, v.r, http.StatusOK, "switchlist", frame{App: v.app, Session: true, Data: view})
	return nil
}

// appsWith returns the names that contain a text in any case: first the name itself, then those that
// begin with the text, each in the order of names.
func appsWith(names []string, text string) []string {
	rank := func(name string) int {
		switch {
		case strings.EqualFold(name, text):
			return 0
		case strings.HasPrefix(strings.ToLower(name), strings.ToLower(text)):
			return 1
		}
		return 2
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !holds(name, text) })
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	return names
}
