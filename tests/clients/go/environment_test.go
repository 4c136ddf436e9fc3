// Package clients tests the clients that operators in Go use against the API server that envtest starts.
package clients

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logs "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

var (
	environment = &envtest.Environment{
		CRDDirectoryPaths:     []string{"crds"},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{"webhooks.yaml"}},
	}
	config *rest.Config
)

func TestMain(m *testing.M) {
	logs.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	began := time.Now()
	if config, err = environment.Start(); err != nil {
		return 1, fmt.Errorf("envtest did not start: %w", err)
	}
	fmt.Printf("envtest started in %.2f s\n", time.Since(began).Seconds())
	code = m.Run()
	stopping := time.Now()
	if err = environment.Stop(); err != nil {
		return 1, fmt.Errorf("envtest did not stop: %w", err)
	}
	fmt.Printf("envtest stopped in %.2f s\n", time.Since(stopping).Seconds())
	return code, nil
}

// deadline returns a context for one test.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until check returns nil, and fails with its last error.
func eventually(t *testing.T, ctx context.Context, check func() error) {
	t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not in time: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
