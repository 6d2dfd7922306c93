// Package zklock is a client of the lock gateway, without dependencies.
//
//	locks := zklock.New("http://127.0.0.1:8080/locks", nil, nil)
//	err := locks.Do(ctx, "nightly", zklock.Options{Wait: time.Minute},
//		func(ctx context.Context, held *zklock.Held) error {
//			return write(ctx, record, held.FencingToken)
//		})
//
// The lock is released when the function returns or panics.  A loss ends the
// context in time: the lease counts from before a confirmed request was sent.
package zklock

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const connect = 5 * time.Second   // for a connection to be made, and a release
const patience = 10 * time.Second // beyond a wait; for all repeats of a release
const session = 10 * time.Second  // zk_lock_session_timeout of the gateway
// The kinds of errors, for errors.Is.
var (
	ErrTaken       = errors.New("taken")       // until the wait was over
	ErrUnreachable = errors.New("unreachable") // a claim may be held for its TTL
	ErrRefused     = errors.New("refused")     // the message says why
	ErrLost        = errors.New("lost")        // not sure to be held any more
	errFreed       = fmt.Errorf("%w: the lock was released", ErrLost)
)

// Options of an acquire.
type Options struct {
	Wait     time.Duration // for all repeats together; 0 tries once
	TTL      time.Duration // 0 is zk_lock_ttl; in a Held, as granted
	Mode     string        // shared, write, semaphore, member; "": exclusive
	Permits  int           // of a semaphore
	Owner    string        // what other clients see
	Volatile bool          // not durable: counts for the session's 10 s at most
}

// Client has the locks of a gateway.
type Client struct {
	url       string
	header    http.Header
	transport *http.Transport
}

// New makes a client of a url, or for "" of $ZK_LOCK_URL or $LOCKS.
func New(url string, header http.Header, config *tls.Config) *Client {
	url = strings.Fields(url + " " + os.Getenv("ZK_LOCK_URL") + " " +
		os.Getenv("LOCKS") + " http://127.0.0.1:8080/locks")[0]
	return &Client{strings.TrimRight(url, "/"), header, &http.Transport{
		DisableKeepAlives: true, // no renewal waits for an acquire
		DialContext:       (&net.Dialer{Timeout: connect}).DialContext,
		TLSClientConfig:   config,
	}}
}

// Do runs a function while the lock is held, and tells of a loss by ErrLost.
func (c *Client) Do(ctx context.Context, name string, options Options,
	run func(context.Context, *Held) error) error {
	held, err := c.Lock(ctx, name, options)
	if err != nil {
		return err
	}
	defer held.Release()
	if err = run(held.Context, held); err == nil && held.Check() != errFreed {
		err = held.Check()
	}
	return err
}

// Lock acquires.  All requests have one key: a repeat makes no second claim.
// If ctx ends first, Lock takes the claim back, for some seconds at most.
func (c *Client) Lock(ctx context.Context, name string,
	options Options) (*Held, error) {
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	if name == "" || name == "." || name == ".." {
		return nil, fmt.Errorf("%w: %q is no name", ErrRefused, name)
	}
	for end := time.Now().Add(options.Wait); ; {
		h := &Held{Options: options, Name: name, client: c,
			path:   c.url + "/" + url.PathEscape(strings.ReplaceAll(name, "/", "%2F")),
			header: http.Header{"Idempotency-Key": {fmt.Sprintf("%x", key)}}}
		for name, values := range c.header {
			h.header[name] = values
		}
		a := h.post(ctx, time.Until(end))
		if h.Token != "" {
			// where the lease may have begun before: renew, then count
			if a.status == 200 || time.Since(h.sent) >= h.lease/3 {
				h.sent = time.Now()
				a = h.renew(ctx)
			}
			if (a.status == 201 || a.status == 200) && h.Check() == nil {
				go h.keep()
				return h, nil
			}
			a.kind = ErrUnreachable
		}
		again := a.kind != ErrRefused || a.status == 409 && options.Permits != 0
		if again && time.Until(end) > a.pause && sleep(ctx, a.pause) {
			continue
		}
		if ctx.Err() != nil && h.Token == "" {
			h.header = h.header.Clone()             // as calls read it
			h.header.Set("Prefer", "respond-async") // a waiting claim has a token
			h.post(context.Background(), 0)
		}
		if h.Token != "" {
			h.Release()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %s", a.kind, a.Detail)
	}
}

func (h *Held) query(wait time.Duration) string {
	query, o, async := url.Values{}, h.Options, h.header.Get("Prefer") != ""
	set := func(name string, value any, given bool) {
		if given {
			query.Set(name, fmt.Sprint(value))
		}
	}
	set("wait", fmt.Sprintf("%.0fms", math.Max(0, wait.Seconds()*1000)), !async)
	set("ttl", fmt.Sprint(o.TTL.Milliseconds(), "ms"), o.TTL != 0)
	set("mode", o.Mode, o.Mode != "")
	set("owner", o.Owner, o.Owner != "")
	set("permits", o.Permits, o.Permits != 0)
	set("durable", 1, !o.Volatile && !async)
	return "?" + query.Encode()
}

// An answer; of status 0 without a whole answer.
type answer struct {
	status                     int
	kind                       error         // ErrRefused is final but for 409
	pause                      time.Duration // before a repeat
	token, Detail, Mode, Owner string
	TTL                        int64 `json:"ttl_ms"`
	Fencing                    int64 `json:"fencing_token"`
}

func (h *Held) call(ctx context.Context, method, query string,
	timeout time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, h.path+query, nil)
	if err != nil {
		return answer{kind: ErrRefused, Detail: err.Error()}
	}
	request.Header = h.header
	response, err := h.client.transport.RoundTrip(request)
	var body []byte
	if err == nil {
		defer response.Body.Close()
		body, err = io.ReadAll(response.Body)
	}
	if err != nil {
		return answer{kind: ErrUnreachable, pause: time.Second, Detail: err.Error()}
	}
	a := answer{status: response.StatusCode, kind: ErrUnreachable,
		pause: time.Second, Detail: response.Status,
		token: response.Header.Get("Lock-Token")}
	if a.status == 423 || a.status == 429 {
		a.kind = ErrTaken
	} else if a.status < 500 {
		a.kind = ErrRefused
	}
	if s, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		a.pause = time.Duration(s) * time.Second
	}
	_ = json.Unmarshal(body, &a)
	return a
}

// Held is a lock that was acquired.
type Held struct {
	Options
	Name, Token, path string
	FencingToken      int64
	Context           context.Context // ends with the lock, or that of Lock
	client            *Client
	header            http.Header
	lease             time.Duration
	life              context.Context // ends with the loss or the release, too
	end, stop         context.CancelFunc
	mutex             sync.Mutex
	sent              time.Time // when the last confirmed request was
	watch             *time.Timer
	err               error
}

// Acquires; with a grant the lease begins.
func (h *Held) post(ctx context.Context, wait time.Duration) answer {
	h.sent = time.Now()
	a := h.call(ctx, "POST", h.query(wait), wait+patience)
	if a.token == "" {
		return a
	}
	h.header.Del("Idempotency-Key")
	h.header.Set("Lock-Token", a.token)
	h.Token, h.FencingToken, h.Mode, h.Owner = a.token, a.Fencing, a.Mode, a.Owner
	h.TTL = time.Duration(a.TTL) * time.Millisecond
	if h.lease = h.TTL; h.Volatile && h.lease > session {
		h.lease = session
	}
	h.Context, h.end = context.WithCancel(ctx)
	h.life, h.stop = context.WithCancel(context.Background())
	h.watch = time.AfterFunc(time.Hour, func() { _ = h.Check() })
	h.watch.Reset(h.lease) // at once for a claim that waits, which has no lease
	return a
}

// Check returns nil only while the lock is held, and else an ErrLost.
func (h *Held) Check() error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if time.Since(h.sent) >= h.lease {
		h.finish(fmt.Errorf("%w: the lease is over by the client's clock", ErrLost))
	}
	return h.err
}

func (h *Held) finish(err error) {
	if h.err == nil {
		h.err = err
		h.stop()
		h.end()
		h.watch.Stop()
	}
}

// Release tells whether the gateway has confirmed that this call freed the
// lock.  An unconfirmed release is no error: the lease ends by itself.
func (h *Held) Release() bool {
	h.mutex.Lock()
	h.finish(errFreed)
	h.mutex.Unlock()
	for end := time.Now().Add(patience); ; {
		a := h.call(context.Background(), "DELETE", "", connect)
		if a.kind == ErrRefused || time.Until(end) <= a.pause {
			return a.status == 204
		}
		time.Sleep(a.pause)
	}
}

// Renews at a third of the lease, and sooner after a failure.
func (h *Held) keep() {
	for wait := h.lease/3 - time.Since(h.sent); sleep(h.life, wait); {
		wait = h.renew(h.life).pause
	}
}

// With a 200 the lease counts from now.  The pause is until the next renewal.
func (h *Held) renew(ctx context.Context) answer {
	sent := time.Now()
	a := h.call(ctx, "PUT", "", h.lease/3)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	switch {
	case a.status == 404 || a.status == 410:
		h.finish(fmt.Errorf("%w: %s", ErrLost, a.Detail))
	case a.status == 200 && time.Since(h.sent) < h.lease:
		h.sent = sent
		h.watch.Reset(time.Until(sent.Add(h.lease)))
		a.pause = h.lease/3 - time.Since(sent)
	case a.pause > h.lease/3:
		a.pause = h.lease / 3
	}
	return a
}

// Whether the whole time has passed before the context was cancelled.
func sleep(ctx context.Context, wait time.Duration) bool {
	over, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	<-over.Done()
	return ctx.Err() == nil
}
