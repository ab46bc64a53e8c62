package mq

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"time"
)

const (
	probeBytes  = 128 << 10
	probeRounds = 15
	// probeShare is the number of writes to one page, as an idle log writes its small
	// groups.
	probeShare = 4
)

// writers maps the names for Config.Writer to ways to write.
var writers = map[string]access{"pwrite": accessPwrite, "direct": accessDirect, "mmap": accessMmap}

// chooseAccess selects the writer. "auto" times all writers on small files, because none is
// the fastest on all disks (the rows of bench/mq by writer, ADR 13). Direct writes only need
// to be faster. A mapping must be clearly faster, because the kernel can report
// errors of stores less well.
func (l *Log) chooseAccess() error {
	l.access = accessPwrite
	if how, ok := writers[l.cfg.Writer]; ok {
		l.access = how
		return nil
	}
	if runtime.GOOS != "linux" {
		return nil
	}
	took, err := l.probe(accessPwrite, accessDirect, accessMmap)
	if err != nil {
		if errors.Is(err, errNoProbe) {
			return nil
		}
		return err
	}
	if d, ok := took[accessDirect]; ok && d < took[accessPwrite]*11/10 {
		l.access = accessDirect
	}
	if m, ok := took[accessMmap]; ok && m < took[l.access]*8/10 {
		l.access = accessMmap
	}
	return nil
}

// errNoProbe means that the disk has no room for the probe; the log may still be
// readable.
var errNoProbe = errors.New("no space for a probe")

// probe returns the median times of a small durable write. The ways take turns, so a busy
// disk affects all equally. A file system may lack all but the first way.
func (l *Log) probe(ways ...access) (map[access]time.Duration, error) {
	var tried []probed
	defer func() {
		for _, p := range tried {
			_ = p.file.Close()
			_ = l.disk.remove(p.name) // the next Open removes it otherwise
		}
	}()
	for i, how := range ways {
		p, err := l.openProbe(how)
		if err == nil {
			tried = append(tried, p)
		} else if i == 0 {
			return nil, errors.Join(errNoProbe, err)
		}
	}
	block := alignedBytes(pageSize)
	for round := range probeRounds {
		for i := range tried {
			if err := tried[i].time(block, int64(round/probeShare)*pageSize); err != nil {
				return nil, err
			}
		}
	}
	took := make(map[access]time.Duration, len(tried))
	for _, p := range tried {
		slices.SortFunc(p.took, cmp.Compare)
		took[p.how] = p.took[len(p.took)/2]
	}
	return took, nil
}

// probed is a small file whose writes are timed, with one way to access the disk.
type probed struct {
	how  access
	name string
	file file
	took []time.Duration
}

func (l *Log) openProbe(how access) (probed, error) {
	p := probed{how: how, name: "probe-" + how.String() + tempSuffix}
	err := l.disk.fill(p.name, probeBytes, how, l.stopping)
	if err == nil {
		p.file, err = l.disk.open(p.name, how)
	}
	if err != nil {
		_ = l.disk.remove(p.name)
	}
	return p, err
}

// time records the time of one durable write.
func (p *probed) time(block []byte, off int64) error {
	start := time.Now()
	if _, err := p.file.WriteAt(block, off); err != nil {
		return err
	}
	if err := p.file.sync(off, int64(len(block))); err != nil {
		return err
	}
	p.took = append(p.took, time.Since(start))
	return nil
}
