/* What the warm parts of our images have in common, in C: the half of the protocol that knows no language.
 *
 *   serve.c         the parent: forks the child for the next run, waits for all children, reports their ends to paddock
 *   take.c          the child: waits for a run, takes it, stores its code as `enter` does
 *   domain.c        the child's Landlock domain, which keeps other programs out of its memory
 *   hold.c          the holder: a process that keeps the child's memory after the child's end
 *   descriptors.c   the descriptors that a child must not share with the parent
 *   pages.c         the pages that a program uses, put in place before the run arrives
 *   save.c          the parent as a file, which restore/restore.c makes a process of again
 *
 * The protocol is in ../README.md, "The warm part". A program must see the same as if the entrypoint had started it. No
 * file here may run, import or read anything in /data before the user's code does. */
#ifndef WARM_H
#define WARM_H
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LINE 3 /* the descriptor of the connection to paddock */

/* An interpreter that forks: what it does around a fork, and how it names the code. */
struct interpreter {
    const char *code_name;         /* the file that has the code, such as "main.py" */
    void (*before_fork)(void);     /* in the parent */
    void (*after_fork)(int child); /* in both processes, before anything else; `child` is 1 in the child */
    void (*prepare)(void);         /* in the child, before it reports that it is ready; it may end the process */
    const char *trial;             /* the path of the program that shows which pages programs write to */
    int places_late;               /* before the first run no child has these pages in place: an idle parent then holds less */
    /* For a snapshot of the parent, or NULL: the directory, the files that the parent depends on (ended by NULL), and what the
     * restored parent does with its environment, a list of "NAME=value" that an empty string ends. It returns the name of a
     * variable with which the parent cannot go on, or NULL. */
    const char *snapshot;
    char *room; /* SNAPSHOT_ROOM bytes on the stack of a function that never returns: the environment of a restored process */
    const char *const *files;
    const char *(*restored)(const char *environment);
};

struct run {
    char **variables; /* "NAME=value", ended by NULL; valid until the process ends */
    char file[64];    /* the path of its code */
    int is_trial;     /* it is no run, but the trial: it must call report_pages() last, and then end */
};

/* Writes `sandbox: WHAT: the error` to standard error and exits with 126, as `enter` does. */
void fail(const char *what) __attribute__((noreturn));

/* Forks a child for each run. It returns 0 in a child that has taken a run, which then becomes the program. In the parent
 * it returns only when it fails: -1, with errno set. */
int serve(const struct interpreter *interpreter, struct run *run);

/* Notes the descriptors of the parent, before it makes those that it shares with its children on purpose. Returns -1 if there
 * are too many. */
int note_descriptors(void);
/* In a child: puts objects of its own in place of those. */
void replace_descriptors(void);

/* Notes what this process has mapped, before the trial. Returns -1 if there can be none. */
int pages_to_learn(int is_restored);
/* In the trial: reports the pages that it has used. */
void report_pages(void);
/* In the parent, after the trial: keeps the list where no child can change it. */
void keep_pages(void);
/* Makes the file for the list in the directory of a snapshot. Returns -1 if there can be no new one. */
int new_pages(const char *directory);
/* Before a trial for that file: the kernel forgets what it has read of the snapshot. */
void forget_file(const char *directory);
/* Writes the list into the file, or removes it. */
void save_pages(int out, const char *directory, int is_small);
/* In a restored parent, in place of the trial: reads the list. Returns -1 if there is none. */
int load_pages(const char *directory, int *is_small);
/* In a restored parent, after that: forgets the entries of its file that it has, which each fork would copy. */
void forget_found(void);
/* In a child: copies those that programs write to, and finds the others. */
void place_pages(void);

/* Writes this process into a file of that directory, and returns 0. Or it says on standard error what is in the way, and returns
 * -1, or SNAPSHOT_UNSUPPORTED where none can be restored on this machine. In a restored process it returns 1: `room` then has its environment, and no function that had begun may return. The
 * room must be on the stack and stay: the kernel shows an environment only if no file is mapped there. */
#define SNAPSHOT_ROOM 16384
#define SNAPSHOT_UNSUPPORTED (-2)
int save_snapshot(const char *directory, const char *const *files, char room[SNAPSHOT_ROOM]);

/* Puts this process into a Landlock domain of its own, where the kernel has Landlock. */
void enter_domain(void);
/* Links the caches of the image into /tmp, unless their directories exist already. */
void link_caches(void);
/* Lets this process run on all processors of the container again. Returns whether it is scheduled as at its start otherwise. */
int keep_scheduling(void);
/* Starts the holder, which keeps the memory of this process after its end. Returns its PID, or -1. */
pid_t hold_memory(void);
/* Reports `ready`, blocks until a run arrives, and moves its streams to descriptors 0, 1 and 2. Ends the process if paddock
 * closes the connection. `taken` is an eventfd that tells the parent that this child has taken a run. `holds`: a holder keeps its
 * memory. */
void take(struct run *run, const char *code_name, int taken, int holds);

#ifdef __cplusplus
}
#endif
#endif
