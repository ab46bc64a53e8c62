package cron

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/spelling"
)

// zoneNames has the names of the zone database in ascending order, one per line. Package
// time cannot list them, and suggestions for misspelt names need them.
//
//go:embed zones.txt
var zoneNames string

// LoadZone returns the zone of the given IANA name; the empty name means UTC. The zone
// data is that of the machine or, if it has none, that in the program. LoadZone refuses
// Local, because it means another zone on each machine.
func LoadZone(name string) (*time.Location, error) {
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	loc, err := loadZone(name)
	if err == nil {
		zones.Store(name, loc)
	}
	return loc, err
}

// zones has the zones that were loaded, by name: there are some 600. The search for a similar name takes longer than
// all else of a schedule.
var zones sync.Map

func loadZone(name string) (*time.Location, error) {
	switch {
	case name == "" || name == "UTC":
		return time.UTC, nil
	case strings.EqualFold(name, "local") || name == "localtime":
		return nil, fmt.Errorf("load zone %q: it depends on the machine, give a name such as Asia/Shanghai or UTC", name)
	case len(name) > 64 || strings.HasPrefix(name, "right/") || strings.HasPrefix(name, "posix/"):
		return nil, fmt.Errorf("load zone %.64q: it is not a zone name, give a name such as Asia/Shanghai or UTC", name)
	}
	suggestion := nearestZone(name)
	// On case-insensitive file systems a name with other capitals would load too. A
	// schedule must not depend on that.
	if suggestion == name || !strings.EqualFold(suggestion, name) {
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	if suggestion == "" {
		return nil, fmt.Errorf("load zone %q: there is no such zone, give a name such as Asia/Shanghai, America/New_York or UTC", name)
	}
	return nil, fmt.Errorf("load zone %q: there is no such zone, did you mean %s?", name, suggestion)
}

// commonZone returns the zone for a common name that is not in the database; "": there is
// none.
func commonZone(name string) string {
	switch name {
	case "beijing", "asia/beijing", "china", "cst china", "utc+8", "gmt+8", "utc+08:00", "gmt+08:00", "+08:00", "+8":
		return "Asia/Shanghai"
	case "pst", "pdt", "pt", "america/san_francisco", "san_francisco", "america/seattle":
		return "America/Los_Angeles"
	case "edt", "et", "america/boston", "america/washington":
		return "America/New_York"
	case "cdt", "ct", "cst":
		return "America/Chicago"
	case "mdt", "mt":
		return "America/Denver"
	case "bst":
		return "Europe/London"
	case "cest":
		return "Europe/Berlin"
	case "ist", "asia/delhi", "asia/mumbai", "asia/bangalore":
		return "Asia/Kolkata"
	case "jst":
		return "Asia/Tokyo"
	case "z", "utc+0", "gmt+00:00", "utc+00:00":
		return "UTC"
	}
	return ""
}

// nearestZone returns the zone name that is most similar to name: name itself if it is
// one, or "" if none is similar.
func nearestZone(name string) string {
	lower := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), " ", "_"))
	best, bestDistance := "", 1+len(lower)/4
	for zone := range strings.Lines(zoneNames) {
		zone = strings.TrimSpace(zone)
		if zone == name {
			return zone
		}
		candidate := strings.ToLower(zone)
		if city := candidate[strings.LastIndexByte(candidate, '/')+1:]; city == lower && bestDistance > 1 {
			best, bestDistance = zone, 1
		}
		if d := spelling.Distance(lower, candidate); d < bestDistance {
			best, bestDistance = zone, d
		}
	}
	if common := commonZone(strings.ToLower(strings.TrimSpace(name))); common != "" && bestDistance > 0 {
		return common
	}
	return best
}
