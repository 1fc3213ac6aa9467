"""Code that runs inside an executor process.

A worker is a service with three methods, run by `serve`:

    class Echo:
        def on_session_enter(self, context): ...
        def on_task_invoke(self, task): return task.input
        def on_session_leave(self): ...

    if __name__ == "__main__":
        ullage.worker.serve(Echo())

`python -m ullage.worker function` and `... command` are the built-in services.
"""

from ullage.worker.context import Context, Gang, context
from ullage.worker.loop import Stopped, serve
from ullage.worker.service import Service, Task, TaskFailed

__all__ = ["Context", "Gang", "Service", "Stopped", "Task", "TaskFailed", "context", "serve"]
