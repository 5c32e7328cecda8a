# Compiles a SPANK plugin against the headers of its own release: `srun --greet=NAME` gives each task GREETING.
set -eu
mkdir -p /usr/lib/plugins
cat >/usr/lib/plugins/greet.c <<'EOF'
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

SPANK_PLUGIN(greet, 1);

static char name[64];

static int keep(int value, const char *argument, int remote)
{
	(void) value;
	(void) remote;
	snprintf(name, sizeof(name), "%s", argument);
	return 0;
}

struct spank_option spank_options[] = {
	{"greet", "NAME", "Greet NAME in each task.", 1, 0, keep},
	SPANK_OPTIONS_TABLE_END
};

int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	char greeting[192];

	if (!name[0])
		return 0;
	snprintf(greeting, sizeof(greeting), "%.99s-%s", count ? arguments[0] : "none", name);
	return spank_setenv(spank, "GREETING", greeting, 1) == ESPANK_SUCCESS ? 0 : -1;
}
EOF
gcc -shared -fPIC -Wall -Werror -o /usr/lib/plugins/greet.so /usr/lib/plugins/greet.c
