package gpu

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumeter/gpumeter/schema"
)

// Errors of a scrape that was answered and still gives no readings.
var (
	// ErrNoGPUs: no line of the answer is of a known exporter. Wrong URL, or the
	// exporter lost its devices.
	ErrNoGPUs = errors.New("no GPU metrics of dcgm-exporter or nvidia_gpu_exporter")
	// ErrStale: the exporter says that its own last collection failed, so its
	// values are of an earlier time.
	ErrStale = errors.New("the exporter's last collection failed")
)

// Defaults fills in what an exporter does not say.
type Defaults struct {
	Node     string
	Instance string // holder of units without an owner label; empty = nobody
	Project  string
	Labels   schema.Labels // of every reading
}

// reader turns the samples of one scrape into units.
type reader struct {
	units  map[unitKey]*facts
	reject func(reason string)
	// relabelled: some sample has exported_* labels, so the scrape went through
	// a Prometheus and every plain pod label names the exporter itself.
	relabelled bool
	migOn      map[string]bool
	failed     bool
	disagree   uint64
}

// read interprets one exposition. Every unit that any line names gets a reading,
// in the order of unit and owner.
func read(text []byte, d *Defaults, reject func(reason string)) ([]schema.Reading, uint64, error) {
	r := reader{units: map[unitKey]*facts{}, migOn: map[string]bool{}, reject: reject}
	var samples []*sample
	parse(text, func(s *sample) {
		r.relabelled = r.relabelled || s.has("exported_pod") || s.has("exported_namespace")
		samples = append(samples, s)
	}, reject)
	for _, s := range samples {
		switch {
		case strings.HasPrefix(s.name, "DCGM_"):
			r.dcgm(s)
		case strings.HasPrefix(s.name, "nvidia_smi_"):
			r.smi(s)
		}
	}
	if r.failed {
		return nil, 0, ErrStale
	}
	if len(r.units) == 0 {
		return nil, 0, ErrNoGPUs
	}
	return r.finish(d), r.disagree, nil
}

func (r *reader) facts(k unitKey) *facts {
	f := r.units[k]
	if f == nil {
		f = newFacts(k)
		r.units[k] = f
	}
	return f
}

// dcgm takes one line of dcgm-exporter.
func (r *reader) dcgm(s *sample) {
	board := s.label("UUID", "uuid")
	if board == "" {
		r.reject(RejectNoDevice)
		return
	}
	f := r.facts(unitKey{board: board, gi: instanceID(s.label("GPU_I_ID"))})
	f.model = cmp.Or(f.model, s.label("modelName"))
	f.profile = cmp.Or(f.profile, s.label("GPU_I_PROFILE"))
	f.node = cmp.Or(f.node, s.label("Hostname", "hostname"))
	o := r.owner(s)
	if o != (owner{}) && !slices.Contains(f.owners, o) {
		f.owners = append(f.owners, o)
	}
	if fd, ok := fields[s.name]; ok && !f.add(fd, o, s.value) {
		r.reject(RejectTwice)
	}
}

// instanceID returns the GPU instance id; all-ones is how DCGM says "no MIG".
func instanceID(s string) string {
	if n, err := strconv.ParseUint(s, 10, 64); err != nil || n >= minusOne {
		return ""
	}
	return s
}

// owner reads who holds the unit: the pod that the exporter names. The instance
// is the pod's UID where a label has it, otherwise namespace/pod; the latter
// comes back when a pod of the same name is created again, so the UID is better.
func (r *reader) owner(s *sample) owner {
	var pod, namespace, uid string
	if r.relabelled {
		pod, namespace, uid = s.label("exported_pod"), s.label("exported_namespace"), s.label("exported_pod_uid")
	} else {
		pod, namespace = s.label("pod", "pod_name"), s.label("namespace", "pod_namespace")
		uid = s.label("pod_uid")
		if pod != "" && pod == s.label("Hostname", "hostname") {
			// The exporter's own pod: its host name is its pod name. Prometheus
			// puts it there and drops an empty exported_pod.
			return owner{}
		}
	}
	switch {
	case pod == "" && uid == "":
		return owner{}
	case uid != "":
		return owner{instance: uid, project: namespace}
	case namespace == "":
		return owner{instance: pod}
	}
	return owner{instance: namespace + "/" + pod, project: namespace}
}

// smi takes one line of nvidia_gpu_exporter. It has no owner labels of its own;
// a pod label here could only be the exporter's.
func (r *reader) smi(s *sample) {
	if s.name == "nvidia_smi_last_collect_success" {
		r.failed = r.failed || s.value == 0
		return
	}
	uuid := s.label("uuid")
	if uuid == "" {
		return // the exporter's own counters
	}
	board := "GPU-" + strings.TrimPrefix(uuid, "GPU-")
	f := r.facts(unitKey{board: board})
	gi := instanceID(s.label("gpu_instance_id"))
	switch {
	case s.name == "nvidia_smi_gpu_info":
		f.model = cmp.Or(f.model, s.label("name"))
	case s.name == "nvidia_smi_mig_mode_current":
		r.migOn[board] = s.value == 1
	case strings.HasPrefix(s.name, "nvidia_smi_mig_") && gi != "":
		f = r.facts(unitKey{board: board, gi: gi})
		f.silent = "MIG: nvidia-smi has no utilization of a GPU instance"
		f.profile = cmp.Or(f.profile, s.label("profile"))
	}
	if fd, ok := fields[s.name]; ok && !f.add(fd, owner{}, s.value) {
		r.reject(RejectTwice)
	}
}

// finish settles what only the whole scrape can tell, and makes the readings.
func (r *reader) finish(d *Defaults) []schema.Reading {
	sliced := map[string]bool{}
	for k := range r.units {
		if k.gi != "" {
			sliced[k.board] = true
		}
	}
	keys := make([]unitKey, 0, len(r.units))
	for k, f := range r.units {
		switch {
		case k.gi == "" && sliced[k.board]:
			continue // the board's own row is no unit beside its instances
		case k.gi == "" && r.migOn[k.board]:
			// Its instances are missing, so what the board says is of unknown use.
			f = onlyMemory(f)
			f.silent = "MIG is on and no GPU instance is listed"
			r.units[k] = f
		case k.gi != "":
			r.inherit(f)
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b unitKey) int { return cmp.Compare(a.unit(), b.unit()) })
	all := make([]schema.Reading, 0, len(keys))
	for _, k := range keys {
		readings, disagree := r.units[k].readings(d)
		if disagree {
			r.disagree++
		}
		all = append(all, readings...)
	}
	return all
}

// inherit gives a GPU instance what only its board's row carries: the model and
// the energy counter. Activity and memory are never the board's.
func (r *reader) inherit(f *facts) {
	board := r.units[unitKey{board: f.key.board}]
	if board == nil {
		return
	}
	f.model = cmp.Or(f.model, board.model)
	f.node = cmp.Or(f.node, board.node)
	if own, _ := f.get(sigEnergy); own.Known {
		return
	}
	for k, v := range board.values {
		if v.field.signal == sigEnergy {
			f.values[k] = v
		}
	}
}

func onlyMemory(f *facts) *facts {
	kept := *f
	kept.values = make(map[seriesKey]value, len(f.values))
	for k, v := range f.values {
		switch v.field.signal {
		case sigMemUsed, sigMemFree, sigMemReserved, sigMemTotal, sigEnergy:
			kept.values[k] = v
		}
	}
	return &kept
}
