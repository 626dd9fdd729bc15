package dfrs

const intro = `# Fractional sharing against batch scheduling: the simulations again

Stillwell, Vivien and Casanova, "Dynamic Fractional Resource Scheduling vs. Batch Scheduling" (IEEE TPDS 2012; INRIA RR-7659; arXiv 1106.4985).
This page and its figures were written by

    %s

A job is equal tasks that need CPU and memory. Batch scheduling gives it nodes of its own, and it waits until they are free. Fractional sharing gives
it parts of nodes at once, pauses and moves jobs where memory is short, and knows no run times. What counts is the greatest bounded stretch of all jobs:
time in the cluster over run time, run times counting as 10 s at least. It is compared with a lower bound that knows everything and leaves memory
aside. A job that was paused or moved stands still for 5 minutes.

`

const costIntro = `## What it costs (table 3)

Scaled workloads of load 0.7 and more, means; GB are 10^9 bytes. A pause is counted twice, when it is written and when it is read; a move once.
Milliseconds are of one thread of a shared machine, with the simulator's own work.

`

const sweepIntro = `## Settings

%d scaled workloads of load %g; one setting of Evenkeel is another than the default (period 600 s, behind counts squared, precedence 2, young up to 60 s,
grace 600 s, a twentieth of all memory may move in one plan, which must gain 10%%, one plan an hour). Below each period of Evenkeel, the paper's best
with the same; at the end EASY.

`

const differences = `## What Evenkeel does otherwise

Allocator, queue and planner of moves are the product's own code; when a job is paused is decided by rules of this simulation.

- New jobs are admitted by the product's allocator (the placement that leaves the greatest minimum yield) at once; where memory is
  short those of the lowest priority are paused, as in GreedyP. The queue is the product's, too.
- *Precedence.* Each period, one that waits takes the place of running jobs only if its priority is so many times theirs. The paper's
  algorithm places all jobs again by MCB8 each period: nodes are filled in order, whatever was there before, and of two jobs with nearly
  equal priority now the one is paused, now the other. That is what most of its bytes are spent on.
- *Young first.* Who has made less than a minute of progress, or was resumed less than a minute ago, is not paused for any job; a new job
  that finds no room for that reason is tried again every 10 s. The young are promised full speed, as far as their node has it; the promise is a floor
  (minYield) that the allocator keeps. The greatest stretch of other policies is often that of a short job that was paused in its first
  minute, or shared a node with many.
- *Behind.* Priority is flow time squared over virtual time cubed, where the paper has flow time over virtual time squared: a job with
  many large tasks, for which many others must make way at once, is not put off again and again.
- *Grace.* Who was resumed or moved less than ten minutes ago is not paused for one that waits, unless that is new.
- *Moves* come from the product's planner: at most a twentieth of all memory in one plan, only for a tenth more minimum yield, one plan an hour.
- *Frugal* is Evenkeel with precedence 4.

## What differs from the paper

- Instances are drawn again, and there are fewer. Workloads are those of the model's untyped mode (one stream of jobs); which mode the paper
  used we do not know. Loads count every task as a whole node.
- The log of HPC2N is an excerpt of eight weeks; the paper has 182 weeks of it. Nodes have two cores and are taken to have 2 GiB. Where a log has no memory
  it is drawn as for synthetic jobs.
- Batch schedulers put as many tasks of a job on a node as have room at full speed, which favours them where tasks need half a node.
- Where the tables and names of the paper leave open what an algorithm does in detail, it does what the authors' simulator does that is public
  (marklee77/vcsim on GitHub): a job pays the penalty as a whole, and holds its nodes meanwhile; MCB8 fills nodes in order and does not look
  who was there. Pauses and moves take effect at once; the penalty stands for the time they take.
- A node has 8 GiB here; for which size the paper's bytes per second are we do not know. Ratios between rows hold whatever it is.
- Times and yields are not rounded; the authors' simulator rounds to seconds and hundredths.
- The bound may be 0.5% below what its argument allows, and joins intervals where there are more than 2,500.
- Of the paper's variants OPT=MIN is here; OPT=AVG and the stretch-per family are not.
- *CPU that was wanted and not used* counts the seconds after a pause or a move as not used.

Of the logs:

`
