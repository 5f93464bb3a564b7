/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wayback: mounts a tree with its history. In the background, the process that was called
 * returns once the mount answers; whatever fails before is one line and exit status 1.
 */
#include "daemon/branch/branch.h"
#include "daemon/main/verbs.h"
#include "daemon/options/config_file.h"
#include "daemon/session/daemonize.h"
#include "daemon/system/report.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Open files of users cost descriptors; everything else is bounded. */
static void raise_limits(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/*
 * glibc takes ever larger blocks from its heaps once some were given back, of which each thread that comes and goes may
 * have another: what was used for a moment stays taken. Chunks of packed logs are such blocks.
 */
#define GIVEN_BACK (256 << 10)

static int run_in_background(const struct wb_options *options)
{
    int fd;
    pid_t pid = wb_run_start(options, &fd);

    if (pid < 0) {
        fprintf(stderr, "wayback: cannot start in the background: %s\n", strerror(-pid));
        return WB_RUN_FAILED;
    }
    return wb_run_wait(fd) < 0 ? WB_RUN_FAILED : WB_RUN_DONE;
}

static int serve(const struct wb_options *options)
{
    if (options->dry_run)
        return wb_run_check(options);
    if (options->branch)
        return wb_branch_mount(options);
    if (options->at && wb_branch_is_one(options->source))
        return wb_branch_view(options);
    return options->foreground ? wb_run(options, -1) : run_in_background(options);
}

/* Whether the answer is for a program; the options may be wrong. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

static int mount_or_ask(int argc, char **argv)
{
    struct wb_options options;
    struct wb_error why = {""};
    int status = WB_RUN_DONE;

    if (wb_options_parse(&options, argc, argv, &why) < 0) {
        wb_options_deinit(&options);
        if (wants_json(argc, argv))
            wb_config_check_refuse(why.text);
        return wb_run_complain(&why, WB_RUN_USAGE);
    }
    if (options.help) {
        wb_options_print_help();
    } else if (options.version) {
        printf("wayback %s (libfuse %s)\n", WAYBACK_VERSION, fuse_pkgversion());
    } else if (options.check_config) {
        status = wb_config_check(&options);
    } else if (options.config_path) {
        status = wb_config_path(&options);
    } else {
        raise_limits();
        mallopt(M_MMAP_THRESHOLD, GIVEN_BACK);
        umask(077);
        wb_log_msg_init(false);
        status = serve(&options);
    }
    wb_options_deinit(&options);
    return status;
}

/* A SRC that does not exist: perhaps a verb was meant. */
static int mount_or_guess(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "", *guess = access(word, F_OK) < 0 ? wb_verb_guess(word) : NULL;
    int status = mount_or_ask(argc, argv);

    if (status != WB_RUN_DONE && guess)
        fprintf(stderr, "wayback: is 'wayback %s' meant?\n", guess);
    return status;
}

int main(int argc, char **argv)
{
    const struct wb_verb *verb = argc > 1 ? wb_verb_find(argv[1]) : NULL;
    int status = verb ? wb_verb_run(verb, argc, argv) : mount_or_guess(argc, argv);

    if (status == WB_VERB_MOUNT)
        return mount_or_ask(argc - 1, argv + 1);
    if (status == WB_VERB_EXPLAIN) {
        wb_options_print_help();
        return WB_RUN_DONE;
    }
    return status;
}
