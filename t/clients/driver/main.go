// A program that uses clients/go; test_clients.py says what it does.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"zklock"
)

var errRaised = errors.New("raised")

func seconds(text string) time.Duration {
	number, _ := strconv.ParseFloat(text, 64)
	return time.Duration(number * float64(time.Second))
}

// how long each round of a loop works; below zero: no loop
var work = -time.Second

func options(words []string) (o zklock.Options, header http.Header) {
	o.Wait = 30 * time.Second
	header = http.Header{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "wait":
			o.Wait = seconds(value)
		case "ttl":
			o.TTL = seconds(value)
		case "mode":
			o.Mode = value
		case "permits":
			o.Permits, _ = strconv.Atoi(value)
		case "owner":
			o.Owner = value
		case "durable":
			o.Volatile = value != "1"
		case "loop":
			work = seconds(value)
		case "auth":
			header.Set("Authorization", value)
		}
	}
	return o, header
}

func use(ctx context.Context, held *zklock.Held) error {
	go func() {
		<-ctx.Done()
		how := held.Check().Error()
		if how != "lost: the lock was released" {
			fmt.Println(strings.Replace(how, ":", "", 1))
		}
	}()
	fmt.Println("held", held.Token, held.FencingToken, held.Owner, held.Mode)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch {
		case in.Text() == "raise":
			return errRaised
		case in.Text() == "release":
			return nil
		case in.Text() == "early":
			held.Release()
			return nil
		case held.Check() == nil:
			fmt.Println("yes")
		default:
			fmt.Println("no")
		}
	}
	return nil
}

func rounds(locks *zklock.Client, name string, o zklock.Options) (err error) {
	over := make(chan bool)
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		close(over)
	}()
	for err == nil {
		select {
		case <-over:
			return nil
		default:
		}
		err = locks.Do(context.Background(), name, o,
			func(_ context.Context, held *zklock.Held) error {
				fmt.Println("in", held.Owner, held.FencingToken)
				time.Sleep(work)
				if err := held.Check(); err != nil {
					return err
				}
				fmt.Println("out", held.Owner, held.FencingToken)
				return nil
			})
	}
	return err
}

func main() {
	url, name := os.Args[1], os.Args[2]
	number, _ := strconv.Atoi(os.Args[3])
	o, header := options(os.Args[4:])
	locks := zklock.New(url, header, nil)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var group sync.WaitGroup
	var mutex sync.Mutex
	granted := 0
	wait := func() {
		defer group.Done()
		patient := o
		patient.Wait = 2 * time.Minute
		_ = locks.Do(ctx, name, patient,
			func(context.Context, *zklock.Held) error {
				mutex.Lock()
				defer mutex.Unlock()
				granted++
				return nil
			})
	}
	var err error
	if work >= 0 {
		err = rounds(locks, name, o)
	} else {
		err = locks.Do(ctx, name, o,
			func(ctx context.Context, held *zklock.Held) error {
				group.Add(number)
				for i := 0; i < number; i++ {
					go wait()
				}
				return use(ctx, held)
			})
	}
	group.Wait()
	if number > 0 {
		fmt.Println("granted", granted)
	}
	if err == nil {
		fmt.Println("end released")
	} else if errors.Is(err, context.Canceled) {
		fmt.Println("end cancelled")
	} else {
		fmt.Println("end", strings.Replace(err.Error(), ":", "", 1))
	}
}
