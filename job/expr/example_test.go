package expr_test

import (
	"fmt"

	"github.com/wheelworkhq/wheelwork/job/expr"
)

// A condition compares the output of an earlier node.
func ExampleParseCondition() {
	c, refs, err := expr.ParseCondition(`nodes.count.output.errors > 0 and input.notify`)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range refs {
		if r.Name == "count" {
			r.Index = 0
		}
	}
	holds, err := c.Holds(&expr.Scope{
		Input: []byte(`{"notify": true}`),
		Nodes: []expr.Node{{State: "succeeded", Done: true, Output: []byte(`{"errors": 3}`)}},
	})
	fmt.Println(holds, err)
	// Output: true <nil>
}

// A template replaces references by values.
func ExampleParseTemplate() {
	t, _, err := expr.ParseTemplate(`{"who": ${json(input.name)}, "price": "$${5}"}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := t.Fill(&expr.Scope{Input: []byte(`{"name": "Ada"}`)})
	fmt.Println(string(text), err)
	// Output: {"who": "Ada", "price": "${5}"} <nil>
}
