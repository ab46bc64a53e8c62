package api

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestUploadsAreAdmitted uses up the limit of one app and then the limit of all apps, and
// ends an upload.
func TestUploadsAreAdmitted(t *testing.T) {
	var u uploads
	var leaves []func()
	for range maxUploadsOfApp {
		of, leave, err := u.admit("shop")
		if err != nil || of == nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, _, err := u.admit("shop"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more upload of an app: %v", err)
	}
	for i := range maxUploads - maxUploadsOfApp {
		if _, _, err := u.admit(fmt.Sprint(i)); err != nil {
			t.Errorf("an upload of another app: %v", err)
		}
	}
	if _, _, err := u.admit("other"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more upload of all: %v", err)
	}
	leaves[0]()
	if _, _, err := u.admit("other"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	leaves[1]()
	if u.apps["shop"] != nil || u.all != maxUploads-1 {
		t.Errorf("%d uploads are counted, and an app without one is kept: %v", u.all, u.apps["shop"])
	}
}
