package console

import (
	"encoding/json"
	"strings"
	"testing"
)

const reportSchema = `{"type":"object","required":["day","rows"],"properties":{
 "day":{"type":"string","description":"the day"},"rows":{"type":"integer","default":10},
 "rate":{"type":"number"},"dry":{"type":"boolean"},"level":{"enum":["low","high",3]},"v":{"const":1}}}`

func TestMergeInput(t *testing.T) {
	fields := inputFieldsOf([]byte(reportSchema))
	for name, c := range map[string]struct {
		former string
		values map[string]string
		want   string // without space
		wrong  map[string]error
	}{
		"values":       {"", map[string]string{"day": "1", "rows": "2", "rate": "1.5", "dry": "false", "level": "3"}, `{"day":"1","dry":false,"level":3,"rate":1.5,"rows":2}`, nil},
		"other member": {`{"x":12345678901234567890,"rate":1}`, map[string]string{"rows": "2", "rate": ""}, `{"rows":2,"x":12345678901234567890}`, nil},
		"mistakes":     {"", map[string]string{"rows": "", "rate": "NaN", "level": "mid"}, "", map[string]error{"rows": errInputRequired, "rate": errInputNumber, "level": errInputChoice}},
		"no integer":   {"", map[string]string{"rows": "1.5"}, "", map[string]error{"rows": errInputInteger}},
	} {
		got, wrong, err := mergeInput(fields, c.former, c.values)
		if got = strings.NewReplacer("\n", "", " ", "").Replace(got); err != nil || got != c.want || len(wrong) != len(c.wrong) {
			t.Errorf("%s: %s, %v, %v; want %s, %v", name, got, wrong, err, c.want, c.wrong)
		}
		for f, want := range c.wrong {
			if wrong[f] != want {
				t.Errorf("%s: the field %s has the error %v, want %v", name, f, wrong[f], want)
			}
		}
	}
	for _, former := range []string{"[]", "null", "text"} {
		if got, _, err := mergeInput(fields, former, nil); err != errInputText || got != former {
			t.Errorf("the input %s: %s, %v", former, got, err)
		}
	}
}

func TestInputWithoutForm(t *testing.T) {
	for _, schema := range []string{
		``, `true`, `{}`, `{"type":"array"}`, `{"type":"object","properties":{"a":{"type":"object"}}}`,
		`{"type":"object","properties":{"a":{"$ref":"#/x"}}}`, `{"type":"object","anyOf":[],"properties":{"a":{"type":"string"}}}`,
		`{"type":"object","properties":{"a":{"enum":["1",1]}}}`,
		`{"type":"object","description":"` + strings.Repeat("x", maxInputSchema) + `","properties":{"a":{"type":"string"}}}`,
	} {
		if f := inputFieldsOf([]byte(schema)); f != nil {
			t.Errorf("the schema %.80s has the fields %v", schema, f)
		}
	}
}

func TestSampleInput(t *testing.T) {
	got, err := sampleInput(inputFieldsOf([]byte(reportSchema)))
	want := `{"day":"","dry":true,"level":"low","rate":0,"rows":10,"v":1}`
	if got = strings.NewReplacer("\n", "", " ", "").Replace(got); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func FuzzInputSchema(f *testing.F) {
	f.Add(reportSchema, "1")
	f.Fuzz(func(t *testing.T, schema, value string) {
		fields := inputFieldsOf([]byte(schema))
		values := map[string]string{}
		for _, field := range fields {
			values[field.Name] = value
		}
		sample, err := sampleInput(fields)
		if err != nil || !json.Valid([]byte(sample)) {
			t.Fatalf("the sample %q is no JSON: %v", sample, err)
		}
		if text, wrong, err := mergeInput(fields, sample, values); err != nil || len(wrong) == 0 && !json.Valid([]byte(text)) {
			t.Fatalf("the input %q: %v", text, err)
		}
	})
}
