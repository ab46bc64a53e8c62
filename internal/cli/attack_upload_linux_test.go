package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/examples/greet"
)

// TestUploadsWithoutEnd sends large uploads to many apps at once. Each gets a response,
// and a small upload of another app is accepted afterwards.
func TestUploadsWithoutEnd(t *testing.T) {
	const size = 40 << 20
	s := attacked(t, 4096)
	upload := func(app string, code io.Reader, n int64) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/api/v1/apps/"+app+"/modules/m/versions/1", code)
		if err != nil {
			return nil, err
		}
		req.ContentLength = n
		req.Header.Set("Authorization", "Bearer "+s.Token)
		req.Header.Set("Expect", "100-continue") // so that the client reads the response instead of a broken connection
		return http.DefaultClient.Do(req)
	}
	var g errgroup.Group
	for i := range 20 {
		g.Go(func() error {
			head := "\x00asm\x01\x00\x00\x00"
			resp, err := upload(fmt.Sprintf("app%d", i), io.MultiReader(strings.NewReader(head), &zeros{left: size - int64(len(head))}), size)
			if err != nil {
				return nil // the server refused it during the transfer
			}
			defer resp.Body.Close() //nolint:errcheck // a test's
			if b, _ := io.ReadAll(resp.Body); resp.StatusCode < 400 || resp.StatusCode >= 500 {
				return fmt.Errorf("an upload that is no module: %s %s", resp.Status, b)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	resp, err := upload("victim", bytes.NewReader(greet.Module), int64(len(greet.Module)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close() //nolint:errcheck // a test's
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("the upload of another app: %s", resp.Status)
	}
	s.checkLives("after the uploads")
	s.checkPeak()
}
