package event

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/trigger"
)

// Bounds of an event source.
const (
	maxTypes = 100
	maxRate  = 10_000 // events in a second
)

// DefaultRate is the number of events in a second that a source admits if it does not say.
const DefaultRate = 100

// ReadSource checks the definition of an event source. An error names the field that is wrong. The
// message is a copy with the fields that clients set.
func ReadSource(d *apiv1.EventSource) (*apiv1.EventSource, error) {
	if d == nil {
		return nil, errors.New("the event source is missing")
	}
	m := proto.CloneOf(d)
	m.App, m.UpdatedAt, m.Revision = cmp.Or(m.App, naming.DefaultApp), nil, 0
	if err := cmp.Or(naming.Check("app", m.App), naming.Check("name", m.Name)); err != nil {
		return nil, err
	}
	if err := checkSource(m); err != nil {
		return nil, fmt.Errorf("event source %s: %w", m.Name, err)
	}
	return m, nil
}

func checkSource(m *apiv1.EventSource) error {
	switch {
	case len(m.Description) > 4096:
		return errors.New("description is longer than 4096 bytes")
	case m.GetSecret().GetSecret() == "":
		return errors.New("secret is missing: name the secret of the app that has the key, as secret: {secret: NAME}")
	case m.Previous != nil && m.Previous.Secret == "":
		return errors.New("previous has no secret: name one, or leave previous out")
	case len(m.Types) > maxTypes:
		return fmt.Errorf("types has %d types, the limit is %d", len(m.Types), maxTypes)
	case m.Rate < 0 || m.Rate > maxRate:
		return fmt.Errorf("rate is %d, it must be 1 to %d events in a second, or 0 for %d", m.Rate, maxRate, DefaultRate)
	}
	if err := job.CheckLabels(m.Labels); err != nil {
		return err
	}
	for _, name := range SecretsOf(m) {
		if err := naming.Check("secret", name); err != nil {
			return err
		}
	}
	for i, name := range m.Types {
		if err := trigger.CheckType("types", name); err != nil {
			return err
		}
		if slices.Contains(m.Types[:i], name) {
			return fmt.Errorf("types names %q twice", name)
		}
	}
	return nil
}

// SecretsOf returns the names of the secrets that have keys of a source.
func SecretsOf(m *apiv1.EventSource) []string {
	names := []string{m.GetSecret().GetSecret()}
	if m.GetPrevious() != nil {
		names = append(names, m.Previous.Secret)
	}
	return names
}

// Admits reports whether a source admits events of a type.
func Admits(m *apiv1.EventSource, name string) bool {
	return len(m.Types) == 0 || slices.Contains(m.Types, name)
}

// RateOf returns the number of events in a second that a source admits.
func RateOf(m *apiv1.EventSource) int { return int(cmp.Or(m.Rate, DefaultRate)) }
