/* ranks.c - `dsmoe` as one of several ranks that mpirun has started: which rank it is, the plugin that joins
 * them, and which rank prints. */
#include "cli/ranks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "peers/mpi.h"
#include "peers/peers.h"
#include "peers/processors.h"

static struct {
    int rank, size;  /* as the environment says; 0 of 1: alone */
    int real_stderr; /* of a rank that is silenced */
    bool is_open;
    mpi_peers mpi;
    int n_threads;
    unsigned patience; /* seconds that are left to reach the other ranks; 0: for ever */
} self = {.size = 1};

/* ---- this rank --------------------------------------------------------------------------------- */

static bool read_variable(const char *name, int *value)
{
    const char *text = getenv(name);
    int64_t number;
    if (!text || !cli_parse_int(text, 0, INT32_MAX, &number)) return false;
    *value = (int)number;
    return true;
}

/* Reads the variables of Open MPI's mpirun, of others of that kind, and of Slurm's srun with PMIx. */
static void read_environment(void)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}};
    for (int i = 0; i < 3; i++) {
        int rank, size;
        if (!read_variable(names[i][0], &rank) || !read_variable(names[i][1], &size)) continue;
        if (size <= 1 || rank >= size) continue;
        self.rank = rank;
        self.size = size;
        return;
    }
}

static void silence(void)
{
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    self.real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (nothing < 0) return;
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    close(nothing);
}

void ranks_begin(void)
{
    read_environment();
    if (self.rank > 0) silence();
}

bool ranks_are_many(void) { return self.size > 1; }

bool ranks_follows(void) { return self.rank > 0; }

int ranks_threads(void) { return self.n_threads; }

/* mpirun ends all ranks a second or two after the first one fails. If a rank fails alone, it first waits so
 * that rank 0, which may fail too, can say why. It waits longer before it prints its own message. False if a
 * signal came meanwhile: this rank is being ended. */
static bool let_rank_0_speak(int ms)
{
    ms += 250 * (self.rank % 50); /* the first one to speak ends the others before they do */
    struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    return self.rank == 0 || nanosleep(&wait, NULL) == 0;
}

/* Prints a message from any rank, unless another rank failed before and ended this one. */
static int speak_up(const char *command, const char *message)
{
    if (!let_rank_0_speak(3000)) return CLI_FAILURE;
    if (self.rank > 0 && self.real_stderr > 0) dup2(self.real_stderr, STDERR_FILENO);
    return cli_failure(command, "%s", message);
}

/* ---- the plugin -------------------------------------------------------------------------------- */

/* The folder of the command itself; "" if that is not known. */
static void find_own_folder(char *folder, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
}

/* Why a function below returned NULL or false. */
typedef char reason[2 * DSMOE_PATH + 512];

/* Loads the plugin: from the folder of the command in a build, or from where it is installed. */
static mpi_peers_open *load(reason why)
{
    char folder[DSMOE_PATH], path[2 * DSMOE_PATH];
    find_own_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/dsmoe_mpi.so", folder);
    if (access(path, F_OK) != 0)
        snprintf(path, sizeof path, "%s/%s/dsmoe_mpi.so", folder, DSMOE_PLUGINS);
    if (access(path, F_OK) != 0) {
        snprintf(why, sizeof(reason),
                 "%d ranks were started, but this dsmoe was built without Open MPI (there is no "
                 "%s): apt-get install libopenmpi-dev openmpi-bin, then make clean install",
                 self.size, path);
        return NULL;
    }
    /* Open MPI loads parts of its own, which look up its names among the global ones. */
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    mpi_peers_open *found = plugin ? (mpi_peers_open *)dlsym(plugin, MPI_PEERS_OPEN) : NULL;
    if (!found)
        snprintf(why, sizeof(reason), "%s (is Open MPI installed? apt-get install openmpi-bin)",
                 dlerror());
    return found;
}

/* Ranks that cannot reach each other wait inside MPI for ever, without a message. */
static void on_slow_start(int signal_number)
{
    static const char slow[] =
        "dsmoe: still waiting for the other ranks; docs/machines.md says what to check if this "
        "lasts\n";
    static const char late[] =
        "dsmoe: the other ranks cannot be reached; docs/machines.md says what to check, and "
        "--peer-timeout sets how long to wait\n";
    static bool is_late;
    (void)signal_number;
    ssize_t written = is_late ? write(STDERR_FILENO, late, sizeof late - 1)
                              : write(STDERR_FILENO, slow, sizeof slow - 1);
    (void)written;
    if (is_late) _exit(CLI_FAILURE);
    is_late = true;
    alarm(self.patience);
}

/* `patience` as in ranks_open. */
static bool join(double patience, reason why)
{
    enum { SLOW = 20, SPEECH = 3 }; /* seconds; rank 0 speaks first */
    dsmoe_error error;
    mpi_peers_open *open_mpi = load(why);
    if (!open_mpi) return false;
    cli_handle_signal(SIGALRM, on_slow_start);
    if (patience > 0) self.patience = (unsigned)patience + 1 + (self.rank > 0 ? SPEECH : 0);
    alarm(SLOW);
    dsmoe_status status = open_mpi(DSMOE_VERSION, &self.mpi, &error);
    alarm(0);
    if (status == DSMOE_OK) status = self.mpi.watch(self.mpi.table.context, patience, &error);
    if (status != DSMOE_OK) {
        snprintf(why, sizeof(reason), "%s", error.message);
        return false;
    }
    self.is_open = true;
    if (self.mpi.table.size == self.size) return true;
    snprintf(why, sizeof(reason),
             "%d ranks were started, but Open MPI sees %d: start them with the mpirun of the "
             "Open MPI that dsmoe was built with",
             self.size, self.mpi.table.size);
    return false;
}

/* Finds this rank's share of its machine's processors; rank 0 warns if a rank may use fewer. */
static int divide_processors(const char *command)
{
    processors_part part;
    dsmoe_error error;
    if (processors_divide(&self.mpi.table, processors_look(), &part, &error) != DSMOE_OK)
        return cli_failure(command, "%s", error.message);
    self.n_threads = part.n_threads;
    if (*part.warning) cli_note(command, "warning: %s", part.warning);
    return CLI_OK;
}

/* ---- joining and leaving ----------------------------------------------------------------------- */

int ranks_open(const char *command, double patience, const dsmoe_peers **peers)
{
    reason why;
    *peers = NULL;
    if (!ranks_are_many()) return CLI_OK;
    if (!join(patience, why)) return speak_up(command, why);
    int exit_code = divide_processors(command);
    if (exit_code != CLI_OK) return exit_code;
    *peers = &self.mpi.table;
    peers_show_life(*peers);
    return CLI_OK;
}

int ranks_close(const char *command, int exit_code)
{
    dsmoe_error error;
    if (!self.is_open) {
        let_rank_0_speak(500);
        return exit_code;
    }
    peers_show_life(NULL);
    if (self.mpi.close(self.mpi.table.context, &error) == DSMOE_OK) return exit_code;
    if (self.rank > 0 || exit_code == CLI_OK)
        speak_up(command, error.message); /* otherwise another message was printed */
    self.mpi.abort(self.mpi.table.context, exit_code ? exit_code : CLI_FAILURE);
    return CLI_FAILURE;
}
