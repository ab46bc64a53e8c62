package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

const (
	// least and most bound the height of a picture.
	least = 600
	most  = 1100
	// patience is the longest that a picture takes.
	patience = time.Minute
)

// photograph signs in with a login link and saves the pictures.
func photograph(ctx context.Context, chromium, profile, login, url string, objects *strings.Replacer, dir string, wanted []shot, notes io.Writer) error {
	ctx, cancel := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.Env("TZ=UTC", "LANGUAGE=en"), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(profile), chromedp.Flag("lang", "en"), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(login)); err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	for i, s := range wanted {
		fmt.Fprintf(notes, "screenshots: %d of %d: %s\n", i+1, len(wanted), s.name)
		if err := s.save(ctx, url+objects.Replace(s.address), filepath.Join(dir, s.name+".png")); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// settled waits until the page, its style sheet and its fonts are there and its script has
// shown what it adds. The value is the title.
const settled = `document.fonts.ready.then(() => new Promise(done => {
	const look = () => {
		const live = document.getElementById("live");
		const log = document.getElementById("log");
		const ready = document.readyState === "complete" && live && !live.hidden && (!log || log.childElementCount > 0);
		ready ? requestAnimationFrame(() => requestAnimationFrame(() => done(document.title))) : setTimeout(look, 20);
	};
	look();
}))`

func (s shot) save(ctx context.Context, address, file string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	theme := "light"
	if s.dark {
		theme = "dark"
	}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	}); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(s.width, least), chromedp.Navigate(address)); err != nil {
		return err
	}
	title, err := chromedp.Run(ctx, chromedp.Evaluate[string](settled, chromedp.EvalAwaitPromise))
	if err != nil {
		return err
	}
	failed, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`performance.getEntriesByType("navigation")[0].responseStatus >= 400`))
	if err != nil {
		return err
	}
	if failed {
		return fmt.Errorf("%s is an error page: %s", address, title)
	}
	height, err := chromedp.Run(ctx, chromedp.Evaluate[float64](`document.documentElement.scrollHeight`))
	if err != nil {
		return err
	}
	bound := most
	if s.width == narrow {
		bound = 900
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(s.width, min(max(int64(height), least), int64(bound)))); err != nil {
		return err
	}
	raw, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	small, err := quantised(raw)
	if err != nil {
		return err
	}
	return os.WriteFile(file, small, 0o644)
}

// maxColours is the size of the palette of a picture. A page has few colours; the rest are
// edges of letters.
const maxColours = 64

// quantised returns a PNG whose palette has the most frequent colours of a picture. The
// others become the nearest of these.
func quantised(raw []byte) ([]byte, error) {
	decoded, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	bounds := decoded.Bounds()
	at := func(x, y int) color.RGBA {
		r, g, b, _ := decoded.At(x, y).RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
	}
	counts := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	colours := make([]color.RGBA, 0, len(counts))
	for c := range counts {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		if n := counts[b] - counts[a]; n != 0 {
			return n
		}
		return (int(a.R)<<16 | int(a.G)<<8 | int(a.B)) - (int(b.R)<<16 | int(b.G)<<8 | int(b.B))
	})
	var palette color.Palette
	for _, c := range colours[:min(len(colours), maxColours)] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	out := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := at(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(palette.Index(c))
				nearest[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, out)
	return b.Bytes(), err
}
