/* DPDK without huge pages, devices and files of its own: all that is wanted of it are functions. */
#include <stdio.h>
#include <rte_eal.h>
#include <rte_version.h>

const char *pt_version(void)
{
	return rte_version();
}

/* Memory in MiB is reserved as address space, and used as pools need it. */
int pt_eal(int cpu, int mb)
{
	char core[16], memory[16];
	char *args[] = { "packtrain", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
			 "--log-level=error", "-l", core, "-m", memory };

	snprintf(core, sizeof(core), "%d", cpu);
	snprintf(memory, sizeof(memory), "%d", mb);
	return rte_eal_init(sizeof(args) / sizeof(*args), args);
}
