package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpumeter/gpumeter/pricing"
	"github.com/gpumeter/gpumeter/report"
	"github.com/gpumeter/gpumeter/web"
)

// startActor is who applied what was given at a start.
const startActor = "up"

// readPriceFiles reads and checks files before anything is started.
func readPriceFiles(paths []string) ([]web.PriceFile, error) {
	var files []web.PriceFile
	for _, path := range paths {
		text, err := readPriceFile(path)
		if err != nil {
			return nil, fmt.Errorf("--prices: %w", err)
		}
		files = append(files, web.PriceFile{File: path, Content: text})
	}
	if len(files) > 0 {
		if _, err := readDocuments(files); err != nil {
			return nil, fmt.Errorf("--prices: %w", err)
		}
	}
	return files, nil
}

func readPriceFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, pricing.MaxFileBytes+1))
	return string(text), err
}

// applyPriceFiles applies what was given at the start where it is not in force yet. A
// closed period is no more changed by a start than by a request.
func (a *app) applyPriceFiles(ctx context.Context) error {
	if len(a.prices) == 0 {
		return nil
	}
	var names []string
	for _, f := range a.prices {
		names = append(names, "--prices "+f.File)
	}
	reason := strings.Join(names, " ")
	r := web.ApplyRequest{Documents: a.prices, By: startActor, Reason: strings.ToValidUTF8(reason[:min(len(reason), report.MaxReason)], "")}
	var applied *web.AppliedPrices
	var refused error
	err := a.retry(ctx, "applying --prices", func(ctx context.Context) error {
		var err error
		var conflict *report.ConflictError
		var wrong *report.RequestError
		if applied, err = a.terms.Apply(ctx, a.o.Tenant, r); errors.As(err, &conflict) || errors.As(err, &wrong) {
			refused, err = err, nil // trying again does not help
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("--prices: %w", err)
	case refused != nil:
		return fmt.Errorf("--prices: %w; start without the file and use gpumeter prices apply", refused)
	}
	for _, d := range applied.Documents {
		if !d.Unchanged {
			a.o.Logger.Info("applied", "kind", d.Kind, "name", d.Name, "file", d.File, "version", d.Version.Version)
		}
	}
	return nil
}
