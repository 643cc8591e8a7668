"""A plugin of interLink to the letter of the published interface, required fields and oddities included.

    python3 testcases/interlink/plugin.py PORT FOLDER

It runs the command of a pod's first container as a process of this machine. Like plugins made with the published kit it answers
422 to whatever lacks a required field, writes explicit nulls, answers a request for statuses only for its first pod, and
500 where there is none. What it was sent is kept in FOLDER, for whoever wants to look.
"""

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel

PORT, FOLDER = int(sys.argv[1]), Path(sys.argv[2])


class Metadata(BaseModel):
    name: Optional[str] = None
    namespace: Optional[str] = None
    uid: Optional[str] = None
    annotations: Optional[Dict[str, str]] = {}
    labels: Optional[Dict[str, str]] = {}


class KeyToPath(BaseModel):
    key: str
    path: str


class ConfigMapSource(BaseModel):
    name: str
    items: Optional[List[KeyToPath]] = []


class Volume(BaseModel):
    name: str
    configMap: Optional[ConfigMapSource] = None
    emptyDir: Optional[dict] = None


class Container(BaseModel):
    name: str
    image: str
    command: List[str]
    args: Optional[List[str]] = []


class Spec(BaseModel):
    containers: List[Container]
    initContainers: Optional[List[Container]] = None
    volumes: Optional[List[Volume]] = None


class PodRequest(BaseModel):
    metadata: Metadata
    spec: Spec


class ConfigMap(BaseModel):
    metadata: Metadata
    data: Optional[dict]
    binaryData: Optional[dict] = None


class Secret(BaseModel):
    metadata: Metadata
    data: Optional[dict] = None


class Retrieved(BaseModel):
    name: str
    configMaps: Optional[List[ConfigMap]] = None
    secrets: Optional[List[Secret]] = None
    emptyDirs: Optional[List[str]] = None


class Pod(BaseModel):
    pod: PodRequest
    container: List[Retrieved]


class Terminated(BaseModel):
    exitCode: int
    reason: Optional[str] = None


class Running(BaseModel):
    startedAt: Optional[str] = None


class Waiting(BaseModel):
    message: Optional[str] = None
    reason: Optional[str] = None


class State(BaseModel):
    terminated: Optional[Terminated] = None
    running: Optional[Running] = None
    waiting: Optional[Waiting] = None


class ContainerStatus(BaseModel):
    name: str
    state: State


class PodStatus(BaseModel):
    name: str
    UID: str
    namespace: str
    containers: List[ContainerStatus]


class LogOpts(BaseModel):
    Tail: Optional[int] = None
    LimitBytes: Optional[int] = None
    Timestamps: Optional[bool]
    Follow: Optional[bool] = False
    Previous: bool
    SinceSeconds: Optional[int] = None
    SinceTime: Optional[datetime.datetime] = None


class LogRequest(BaseModel):
    Namespace: str
    PodUID: str
    PodName: str
    ContainerName: str
    Opts: LogOpts


class Created(BaseModel):
    PodUID: str
    PodJID: str


app = FastAPI()
jobs = {}


def note(what, body):
    with open(FOLDER / "asked", "a") as log:
        log.write(json.dumps([what, body]) + "\n")


@app.post("/create")
def create(given: Pod) -> Created:
    uid = given.pod.metadata.uid
    note("create", given.model_dump(mode="json"))
    container = given.pod.spec.containers[0]
    if container.image == "refused":
        raise HTTPException(status_code=422, detail="this image is not welcome here")
    out = open(FOLDER / f"{uid}.out", "wb")
    jobs[uid] = subprocess.Popen(container.command + (container.args or []), stdout=out, stderr=out)
    return Created(PodUID=uid, PodJID=str(jobs[uid].pid))


@app.post("/delete")
def delete(pod: PodRequest) -> str:
    note("delete", pod.metadata.uid)
    job = jobs.pop(pod.metadata.uid, None)
    if job is None:
        raise HTTPException(status_code=404, detail="no such pod")
    job.kill()
    job.wait()
    return "Containers deleted"


@app.get("/status")
def status(pods: List[PodRequest]) -> List[PodStatus]:
    note("status", len(pods))
    pod = pods[0]
    job = jobs.get(pod.metadata.uid)
    if job is None:
        raise HTTPException(status_code=404, detail="no such pod")
    code = job.poll()
    state = State(running=Running()) if code is None else State(terminated=Terminated(exitCode=code))
    containers = [ContainerStatus(name=pod.spec.containers[0].name, state=state)]
    return [PodStatus(name=pod.metadata.name, UID=pod.metadata.uid, namespace=pod.metadata.namespace, containers=containers)]


@app.get("/getLogs")
def logs(asked: LogRequest):
    note("logs", asked.model_dump(mode="json"))
    path = FOLDER / f"{asked.PodUID}.out"
    if not asked.Opts.Follow:
        return PlainTextResponse(path.read_bytes())
    job = jobs[asked.PodUID]

    def follow():
        with open(path, "rb") as log:
            while True:
                ended = job.poll() is not None
                piece = log.read()
                if piece:
                    yield piece
                elif ended:
                    return
                else:
                    try:
                        job.wait(0.05)
                    except subprocess.TimeoutExpired:
                        pass

    return StreamingResponse(follow(), media_type="text/plain")


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
