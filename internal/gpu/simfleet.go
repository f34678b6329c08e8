package gpu

import (
	"fmt"
	"math/rand/v2"

	"github.com/gpumeter/gpumeter/schema"
)

// simKind is how a simulated job behaves.
type simKind uint8

const (
	simSteady     simKind = iota // busy around the clock
	simBursty                    // busy and idle by turns
	simNight                     // busy in office hours, idle at night and on weekends
	simLow                       // busy all the time, with little
	simForgotten                 // held and never used
	simRestarting                // busy, under a new instance id every few hours
	simSilent                    // busy, and often not heard of
	simBlind                     // held, without a readable utilization
	simShared                    // several owners take turns on one unit
	simFree                      // nobody holds it
)

type simJob struct {
	kind    simKind
	gpus    int // boards, all held by one instance
	project string
	name    string
	load    string   // workload label
	sharers []string // projects of a shared unit
}

type simSlice struct {
	profile string
	job     simJob
}

// simRack is a machine type: what it is, where it stands, what runs on it.
type simRack struct {
	name, platform, region string
	model, prefix          string
	memoryGiB              int64
	idleW, maxW            int32
	metered                bool
	jobs                   []simJob
	mig                    []simSlice // one more board, cut into these
}

var simRacks = []simRack{
	{name: "h100", platform: "aliyun", region: "cn-beijing", model: "NVIDIA H100 80GB HBM3", prefix: "GPU-",
		memoryGiB: 80, idleW: 70, maxW: 700, metered: true,
		jobs: []simJob{
			{kind: simSteady, gpus: 4, project: "llm-train", name: "pretrain-7b", load: "training"},
			{kind: simBursty, gpus: 1, project: "llm-train", name: "sft-eval", load: "training"},
			{kind: simNight, gpus: 1, project: "search", name: "ranker", load: "inference"},
			{kind: simForgotten, gpus: 1, project: "vision", name: "notebook-li", load: "test"},
			{kind: simFree, gpus: 1},
		}},
	{name: "a100", platform: "aws", region: "us-east-1", model: "NVIDIA A100-SXM4-80GB", prefix: "GPU-",
		memoryGiB: 80, idleW: 50, maxW: 400, metered: true,
		jobs: []simJob{
			{kind: simNight, gpus: 2, project: "ads", name: "ctr-serving", load: "inference"},
			{kind: simSteady, gpus: 2, project: "vision", name: "detector-train", load: "training"},
			{kind: simShared, gpus: 1, name: "notebooks", load: "test", sharers: []string{"vision", "ads", "search"}},
			{kind: simForgotten, gpus: 1, project: "ads", name: "feature-test", load: "test"},
			{kind: simFree, gpus: 1},
		},
		mig: []simSlice{
			{"3g.40gb", simJob{kind: simNight, project: "search", name: "embedder", load: "inference"}},
			{"2g.20gb", simJob{kind: simBursty, project: "ads", name: "reranker", load: "inference"}},
			{"1g.10gb", simJob{kind: simForgotten, project: "vision", name: "notebook-wang", load: "test"}},
			{"1g.10gb", simJob{kind: simFree}},
		}},
	{name: "rtx4090", platform: "autodl", region: "bj-b", model: "NVIDIA GeForce RTX 4090", prefix: "GPU-",
		memoryGiB: 24, idleW: 20, maxW: 450,
		jobs: []simJob{
			{kind: simBursty, gpus: 2, project: "vision", name: "diffusion-lora", load: "training"},
			{kind: simForgotten, gpus: 2, project: "llm-train", name: "tokenizer-try", load: "test"},
			{kind: simNight, gpus: 2, project: "ads", name: "creative-gen", load: "inference"},
			{kind: simFree, gpus: 2},
		}},
	{name: "l40s", platform: "self", region: "sh-dc1", model: "NVIDIA L40S", prefix: "GPU-",
		memoryGiB: 48, idleW: 35, maxW: 350, metered: true,
		jobs: []simJob{
			{kind: simRestarting, gpus: 2, project: "vision", name: "video-encode", load: "inference"},
			{kind: simSilent, gpus: 1, project: "search", name: "crawler-ocr", load: "inference"},
			{kind: simBlind, gpus: 1, project: "ads", name: "legacy-serving", load: "inference"},
			{kind: simLow, gpus: 2, project: "search", name: "qa-serving", load: "inference"},
			{kind: simFree, gpus: 2},
		}},
	{name: "h20", platform: "tencentcloud", region: "ap-shanghai", model: "NVIDIA H20", prefix: "GPU-",
		memoryGiB: 96, idleW: 75, maxW: 500, metered: true,
		jobs: []simJob{
			{kind: simNight, gpus: 4, project: "llm-serve", name: "chat-72b", load: "inference"},
			{kind: simSteady, gpus: 2, project: "llm-serve", name: "batch-infer", load: "inference"},
			{kind: simLow, gpus: 1, project: "search", name: "rewrite", load: "inference"},
			{kind: simFree, gpus: 1},
		}},
	{name: "ascend", platform: "huaweicloud", region: "cn-north-4", model: "Ascend 910B", prefix: "NPU-",
		memoryGiB: 64, idleW: 90, maxW: 400,
		jobs: []simJob{
			{kind: simSteady, gpus: 4, project: "llm-train", name: "pretrain-13b", load: "training"},
			{kind: simBursty, gpus: 2, project: "llm-train", name: "port-check", load: "test"},
			{kind: simForgotten, gpus: 2, project: "vision", name: "migration-poc", load: "test"},
		}},
}

// builder puts one node together.
type builder struct {
	rack *simRack
	node SimNode
	seed uint64 // of this node
}

func buildNode(i int, o SimOptions) SimNode {
	rack := &simRacks[i%len(simRacks)]
	b := builder{
		rack: rack,
		node: SimNode{Name: fmt.Sprintf("%s-%02d", rack.name, i+1), Platform: rack.platform, Region: rack.region, clock: o.Clock},
		seed: mix(o.Seed, uint64(i)+1),
	}
	for j := range rack.jobs {
		job := &rack.jobs[j]
		for range job.gpus {
			board := b.board()
			u := b.unit(board, j, job)
			u.unit, u.model, u.total, u.weight = board.uuid, rack.model, rack.memoryGiB<<30, 1
			b.power(board)
		}
	}
	if len(rack.mig) > 0 {
		b.cut(b.board())
	}
	return b.node
}

// cut adds the MIG board. Its GPU instance ids are not consecutive, as on real ones.
func (b *builder) cut(board *simBoard) {
	for j := range b.rack.mig {
		s := &b.rack.mig[j]
		u := b.unit(board, 100+j, &s.job)
		u.weight = computeSlices(s.profile)
		u.unit = fmt.Sprintf("%s/gi/%d", board.uuid, []int{2, 5, 9, 10}[j%4])
		u.model = b.rack.model + " MIG " + s.profile
		u.total = (b.rack.memoryGiB << 30) / 8 * max(u.weight, 1)
	}
	b.power(board)
}

func (b *builder) board() *simBoard {
	k := mix(b.seed, 1<<32+uint64(len(b.node.units)))
	k2 := mix(k, 7)
	return &simBoard{
		metered: b.rack.metered,
		uuid:    fmt.Sprintf("%s%08x-%04x-%04x-%04x-%012x", b.rack.prefix, k>>32, k>>16&0xffff, k&0xffff, k2>>48, k2&0xffffffffffff),
	}
}

func (b *builder) unit(board *simBoard, place int, job *simJob) *simUnit {
	// Units of one job keep pace with one another, as data-parallel workers do.
	jobKey := mix(b.seed, 1<<40+uint64(place))
	u := &simUnit{
		board: board, job: job, key: mix(b.seed, 1<<48+uint64(len(b.node.units))),
		pace: pace(job.kind, rand.New(rand.NewPCG(jobKey, 1))),
	}
	if job.kind != simFree {
		u.holder = fmt.Sprintf("%s-%s-%06x", job.name, b.node.Name, jobKey&0xffffff)
		u.labels = schema.Labels{{Key: "job", Value: job.name}, {Key: "workload", Value: job.load}}
	}
	b.node.units = append(b.node.units, u)
	return u
}

// power adds up what the board's units draw: an idle floor, and above it in
// proportion to use and size.
func (b *builder) power(board *simBoard) {
	slices := int64(1)
	if len(b.node.units) > 0 && b.node.units[len(b.node.units)-1].unit != board.uuid {
		slices = 7
	}
	for step := range board.watts {
		use := int64(0)
		for _, u := range b.node.units {
			if u.board == board {
				use += int64(u.pace[step]) * u.weight
			}
		}
		board.watts[step] = b.rack.idleW + int32(int64(b.rack.maxW-b.rack.idleW)*use/(slices*schema.UtilizationOne))
	}
	board.sum()
}

// pace draws a week of utilization, in millionths, one value a step from Monday
// 00:00 UTC.
func pace(kind simKind, r *rand.Rand) (p [simSteps]int32) {
	between := func(low, high int32) int32 { return low + r.Int32N(high-low) }
	left, busy := 0, false
	for i := range p {
		switch kind {
		case simSteady, simRestarting, simSilent:
			p[i] = between(830_000, 990_000)
		case simLow:
			p[i] = between(20_000, 90_000)
		case simBlind:
			p[i] = between(300_000, 600_000)
		case simBursty, simShared:
			if left == 0 {
				busy, left = !busy, 2+r.IntN(10)
			}
			left--
			if busy {
				p[i] = between(550_000, 970_000)
			}
		case simNight:
			local := int64(i)*simStepMs + simLocalMs
			hour, day := local/schema.HourMs%24, local/(24*schema.HourMs)%7
			if hour >= 9 && hour < 21 && day < 5 {
				p[i] = between(250_000, 800_000)
			}
		}
	}
	return p
}

// mix is a hash of two numbers in which every bit of either moves every bit of
// the result (the finalizer of splitmix64).
func mix(a, b uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
