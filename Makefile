# Each target is one or two commands; README.md gives them without make.
PYTHON ?= python3
ENV = .venv/bin
BOOK = .venv-book/bin

.PHONY: address address-remove book doctor test test-matrix differential test-cuda bench lab record record-machine clean

book: .venv-book/ready        ## build the HTML in a small environment of its own
	$(BOOK)/jupyter-book build . --warningiserror --nitpick --keep-going
	@echo "The book is built. Open file://$(CURDIR)/_build/html/index.html"

doctor: .venv/ready           ## say what is wrong with this machine, and the way out
	$(ENV)/python -m d2l_gpu

test: .venv/ready             ## run every test, notebooks included, and print a summary
	$(ENV)/python tests/run.py

test-matrix:                  ## the package and the simulator under other releases of torch
	$(PYTHON) tests/matrix.py $(TORCH)

differential: .venv/ready     ## the simulated GPUs against the CPU, over PyTorch's own database of operators
	$(ENV)/python tests/simulator/differential.py

test-cuda: .venv/ready        ## run the notebooks on this machine's GPUs and write a report to results/
	$(ENV)/python tests/cuda.py

bench: .venv/ready            ## measure the ratios that the book claims
	$(ENV)/python tools/bench.py

record-machine: .venv/ready   ## measure this machine within 8 minutes and write results/<machine>.json
	$(ENV)/python -m d2l_gpu.record --minutes 8

lab: .venv/ready              ## open the chapters in JupyterLab
	$(ENV)/jupyter lab --notebook-dir=chapters

address:                      ## write the repository's address into the chapters: URL=https://github.com/OWNER/REPOSITORY
	$(PYTHON) tools/address.py "$(URL)" $(if $(BRANCH),--branch "$(BRANCH)")

address-remove:               ## take the repository's address out of the chapters
	$(PYTHON) tools/address.py --remove

record: .venv/ready           ## run the chapters and store their outputs
	$(ENV)/python tools/notebooks.py record

clean:
	rm -rf .venv .venv-book _build

.venv-book/ready: requirements-book.txt
	$(PYTHON) -m venv .venv-book
	$(BOOK)/python -m pip install --quiet --requirement requirements-book.txt
	@touch $@

.venv/ready: requirements.txt requirements-book.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(ENV)/python -m pip install --quiet --requirement requirements.txt
	@touch $@
