package session

import "slices"

// queue holds the tasks that wait for a slot, and gives them out an app at a time, in
// turn: very many tasks of one app do not keep those of another waiting. Of one app
// they keep their order. The zero queue is empty.
type queue struct {
	n     int
	lines []*line          // of apps with tasks; the first is next
	of    map[string]*line // by app, those in lines
}

// line is the tasks of an app.
type line struct {
	app   string
	tasks []*task
}

func (q *queue) len() int { return q.n }

func (q *queue) push(t *task) {
	l := q.of[t.key.app]
	if l == nil {
		l = &line{app: t.key.app}
		if q.of == nil {
			q.of = map[string]*line{}
		}
		q.of[l.app] = l
		q.lines = append(q.lines, l)
	}
	l.tasks = append(l.tasks, t)
	q.n++
}

// take appends up to n tasks to batch: those of the app whose turn it is, and as long
// as there are fewer, those of the next one.
func (q *queue) take(batch []*task, n int) []*task {
	for n = min(n, q.n); n > 0; {
		l := q.lines[0]
		k := min(n, len(l.tasks))
		batch = append(batch, l.tasks[:k]...)
		l.tasks = l.tasks[k:]
		n, q.n = n-k, q.n-k
		q.lines = append(q.lines[:0], q.lines[1:]...) // apps are few
		if len(l.tasks) > 0 {
			q.lines = append(q.lines, l)
		} else {
			delete(q.of, l.app)
		}
	}
	return batch
}

// remove takes out a task, if it is there.
func (q *queue) remove(t *task) {
	l := q.of[t.key.app]
	if l == nil {
		return
	}
	i := slices.Index(l.tasks, t)
	if i < 0 {
		return
	}
	l.tasks = slices.Delete(l.tasks, i, i+1)
	q.n--
	if len(l.tasks) == 0 {
		delete(q.of, l.app)
		q.lines = slices.DeleteFunc(q.lines, func(x *line) bool { return x == l })
	}
}

// empty takes all tasks out, and returns them.
func (q *queue) empty() []*task { return q.take(nil, q.n) }
