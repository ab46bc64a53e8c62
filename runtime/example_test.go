package runtime_test

import (
	"fmt"
	"log"
	"net/url"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// Grants determine the requests that a handler may send, by host, method and path.
func ExampleGrants_Request() {
	grants := runtime.Grants{HTTP: []runtime.HTTPGrant{
		{Host: "*.example.com", Methods: []string{"GET", "POST"}, Paths: []string{"/v1/"}},
	}}
	for _, r := range []struct{ method, address string }{
		{"POST", "https://api.example.com/v1/orders"},
		{"DELETE", "https://api.example.com/v1/orders"},
		{"GET", "https://api.example.com/admin"},
		{"GET", "https://example.org/v1/orders"},
	} {
		u, err := url.Parse(r.address)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.method, r.address, grants.Request(r.method, u) != nil)
	}
	// Output:
	// POST https://api.example.com/v1/orders true
	// DELETE https://api.example.com/v1/orders false
	// GET https://api.example.com/admin false
	// GET https://example.org/v1/orders false
}

// A handler may enqueue runs of the jobs that its grants name. A star means all jobs of its
// own app.
func ExampleGrants_Target() {
	grants := runtime.Grants{Enqueue: []string{"*", "billing/invoice"}}
	fmt.Println(grants.Target("shop", "shop", "report"))
	fmt.Println(grants.Target("shop", "billing", "invoice"))
	fmt.Println(grants.Target("shop", "billing", "refund"))
	// Output:
	// true
	// true
	// false
}
